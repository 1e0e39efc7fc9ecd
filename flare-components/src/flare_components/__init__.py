"""Operators, modules and program composition for recipes."""

__version__ = "0.1.0"
