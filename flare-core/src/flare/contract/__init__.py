"""What a core promises to the runtime: typed data only. Imports nothing else of flare."""
