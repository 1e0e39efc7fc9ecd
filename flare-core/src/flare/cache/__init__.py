"""Pages and continuation rows: who owns what, and when it is free again."""
