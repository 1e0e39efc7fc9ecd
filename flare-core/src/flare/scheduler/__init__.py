"""Request life cycle, admission and planning. Pure Python, no device."""
