"""Helpers for recipe authors and for this project's own tests."""
