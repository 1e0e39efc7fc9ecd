"""The flare command: thin typer commands over the packages."""
