"""HTTP: OpenAI-compatible endpoints, health and readiness."""
