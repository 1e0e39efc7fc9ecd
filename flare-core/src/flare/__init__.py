"""Flare: prepare a language model once into a runtime core, serve the core to agents."""

__version__ = "0.1.0"
