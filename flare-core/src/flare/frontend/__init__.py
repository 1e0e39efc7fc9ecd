"""Text on one side, token ids on the other: tokenizer, templates, detokenizer, stop strings."""
