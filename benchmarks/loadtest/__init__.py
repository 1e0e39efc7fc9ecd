"""Parts of the benchmark client: streams, prompts, scenarios, and what is written about them."""
