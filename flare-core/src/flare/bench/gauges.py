"""Values of a Prometheus page."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def read_gauges(page: str | None) -> dict[str, float]:
    """Values without labels, or of the first labels, of a Prometheus page; nothing when it is none."""
    values: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(page or ""):
            for sample in family.samples:
                values.setdefault(sample.name, float(sample.value))
    except (ValueError, IndexError, KeyError):
        return {}
    return values
