"""The one error of the client."""


class BenchmarkError(Exception):
    """A measurement that would mean nothing; the message says why."""
