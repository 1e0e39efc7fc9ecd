"""Packs uploads, launches programs, reads completions; the engine process and its messages."""
