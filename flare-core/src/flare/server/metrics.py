"""`/metrics`: the exposition of everything that is counted (https://prometheus.io/docs/instrumenting)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from starlette.responses import PlainTextResponse, Response

from flare import __version__
from flare.engine.interface import EngineClient
from flare.engine.messages import Stats
from flare.errors import FlareError
from flare.server.documents import documented_text
from flare.server.identity import CoreIdentity
from flare.server.meter import Meter
from flare.server.metric_table import ENGINE_METRICS, METRICS, STATE_METRICS, MetricRow

_PATIENCE_SECONDS = 1.0  # an engine answers between steps


class Metrics:
    """All metrics of one app: `meter` counts, `exposition` reads. Nothing is shared between apps."""

    def __init__(self, model_name: str, engine: EngineClient, core: CoreIdentity | None) -> None:
        self._registry = CollectorRegistry()
        self.meter = Meter(model_name, self._registry)
        self._engine = engine
        self._gauges = _EngineCollector(model_name, engine, core)
        self._registry.register(self._gauges)
        ProcessCollector(registry=self._registry)

    async def exposition(self) -> bytes:
        """The text. Asks the engine for its numbers, and does without them when it has none: never raises
        because of the engine, never waits longer than a second."""
        self._gauges.stats = await self._stats()
        # Several milliseconds of formatting, which the tokens of others need not wait for.
        return await asyncio.to_thread(generate_latest, _Twice(self._registry))

    async def _stats(self) -> Stats | None:
        if not self._engine.alive or self._engine.ready is None:
            return None
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await self._engine.stats()
        except (FlareError, TimeoutError):
            return None


def add_metrics_route(app: FastAPI, metrics: Metrics) -> None:
    """`GET /metrics`."""

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        response_model=None,
        responses=documented_text("text/plain", "the exposition"),
    )
    async def exposition() -> Response:
        return Response(await metrics.exposition(), media_type=CONTENT_TYPE_LATEST)


class _EngineCollector(Collector):
    """What is read from the engine, and what is known about it."""

    def __init__(self, model_name: str, engine: EngineClient, core: CoreIdentity | None) -> None:
        self.stats: Stats | None = None
        self._model = model_name
        self._engine = engine
        self._info = (__version__, core.digest if core else "", str(core.format) if core else "")

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        up = self._engine.alive and self._engine.ready is not None
        values: dict[str, float] = {
            "engine_up": float(up),
            "engine_restarts_total": self._engine.restarts,
            "build_info": 1.0,
        }
        if self.stats is not None:
            values.update(_engine_values(self.stats))
        for row in (*STATE_METRICS, *ENGINE_METRICS):
            value = values.get(row.name.partition(":")[2])
            if value is not None:
                yield self._family(row, value)

    def _family(self, row: MetricRow, value: float) -> Metric:
        labels = self._info if row.name == "flare:build_info" else (self._model,)
        kind = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
        family = kind(row.name, row.help, labels=row.labels)
        family.add_metric(labels, value)
        return family


def _engine_values(stats: Stats) -> dict[str, float]:
    used = stats.total_pages - stats.free_pages
    values: dict[str, float] = {
        "num_requests_running": stats.running,
        "num_requests_waiting": stats.waiting,
        "kv_cache_usage_perc": used / stats.total_pages if stats.total_pages else 0.0,
        "total_pages": stats.total_pages,
        "free_pages": stats.free_pages,
        "free_rows": stats.free_rows,
        "free_slots": stats.free_slots,
        "cached_pages": stats.cached_pages,
        "checkpoints": stats.checkpoints,
        "checkpoints_published_total": stats.checkpoints_published,
        "checkpoints_thinned_total": stats.checkpoints_thinned,
        "checkpoints_evicted_for_pages_total": stats.checkpoints_evicted_for_pages,
        "checkpoints_evicted_for_rows_total": stats.checkpoints_evicted_for_rows,
        "captures_skipped_total": stats.captures_skipped,
        "num_preemptions_total": stats.preemptions,
        "cache_restored_tokens_total": stats.restored_tokens,
        "cache_failed_restores_total": stats.failed_restores,
        "cache_failed_writes_total": sum(store.failed for store in stats.stores),
        "step_period_seconds": stats.step_period_ms / 1e3,
        "program_seconds": stats.program_ms / 1e3,
        "engine_steps_total": stats.steps,
    }
    stores = {store.name: store for store in stats.stores}
    for name in ("host", "disk"):
        store = stores.get(name)
        values[f"{name}_cache_bytes"] = store.bytes if store else 0
        values[f"{name}_cache_hits_total"] = store.hits if store else 0
        values[f"{name}_cache_evicted_total"] = store.evicted if store else 0
    if stats.device_growth is not None:
        values["device_growth_total"] = stats.device_growth
    if stats.resident_bytes:
        values["engine_resident_memory_bytes"] = stats.resident_bytes
    if stats.open_files:
        values["engine_open_fds"] = stats.open_files
    return values


class _Twice:
    """A registry's families, and behind each one that vLLM knows the same under vLLM's name. Creation times,
    which nobody asked for, are left out."""

    _ALIASES: Mapping[str, str] = {
        row.name.removesuffix("_total"): row.alias_name.removesuffix("_total")
        for row in METRICS
        if row.alias_name is not None
    }

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            for name in (family.name, self._ALIASES.get(family.name)):
                if name is not None:
                    copy = Metric(name, family.documentation, family.type)
                    copy.samples = [
                        Sample(
                            name + s.name.removeprefix(family.name),
                            s.labels,
                            s.value,
                            s.timestamp,
                            s.exemplar,
                        )
                        for s in samples
                    ]
                    yield copy
