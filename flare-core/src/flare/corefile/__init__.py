"""The runtime core container: one safetensors file, written, read, inspected, verified."""
