"""Preparation: checkpoint reading, memory plan, tracing, tuning and export of a core."""
