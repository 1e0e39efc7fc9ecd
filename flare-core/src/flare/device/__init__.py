"""Where programs run: memory, executables and their completion, per device kind."""
