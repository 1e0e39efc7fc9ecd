"""Counting while requests run and when they end."""

from __future__ import annotations

from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from flare.server.choices import Choice
from flare.server.metric_table import REQUEST_METRICS, MetricRow
from flare.server.record import RequestRecord

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"))
CLIENT_LEFT = 499  # nginx's status for a client that left before its response


class Meter:
    """The front's counters and histograms, in a registry of their own. Everything is called on the event
    loop; a token costs two additions."""

    def __init__(self, model_name: str, registry: CollectorRegistry) -> None:
        self._made: dict[str, Counter | Gauge | Histogram] = {}
        for row in REQUEST_METRICS:
            self._made[row.name.partition(":")[2]] = _make(row, registry)
        self._model = model_name
        self._tokens = self._counter("generation_tokens_total").labels(model_name)
        self._prompt_tokens = self._counter("prompt_tokens_total").labels(model_name)
        self._inter_token = self._histogram("inter_token_latency_seconds")
        self._first_token = self._histogram("time_to_first_token_seconds")
        self._queue = self._histogram("request_queue_time_seconds")
        self._open = self._made["http_requests_open"]
        # Series exist from the start, so that a rate over the first event is not lost.
        for reason in ("stop", "length", "abort", "error"):
            self._counter("request_success_total").labels(model_name, reason)
        for name in ("prefix_cache_queries_total", "prefix_cache_hits_total"):
            self._counter(name).labels(model_name)

    def arrived(self) -> None:
        """An HTTP request began."""
        assert isinstance(self._open, Gauge)
        self._open.inc()

    def admitted(self, choice: Choice) -> None:
        """The engine admitted `choice`."""
        self._queue.observe(choice.admitted_at - choice.submitted_at)

    def drew(self, choice: Choice, count: int) -> None:
        """`count` tokens were taken from the engine, at `choice.last_at`; notes the moment in `choice`."""
        now = monotonic()
        self._tokens.inc(count)
        if choice.first_at:
            each = (now - choice.last_at) / count
            for _ in range(count):
                self._inter_token.observe(each)
        else:
            choice.first_at = now
            choice.first_drawn = count
            self._first_token.observe(now - choice.arrived_at)
            self._prompt_tokens.inc(choice.prompt_tokens)
        choice.last_at = now
        choice.drawn += count

    def ended(self, record: RequestRecord) -> None:
        """An HTTP request that began is over."""
        assert isinstance(self._open, Gauge)
        self._open.dec()
        self.refused(record)
        if record.disconnected:
            self._counter("client_disconnects_total").inc()
        if any(choice.admitted_at for choice in record.choices):
            self._histogram("request_params_n").observe(len(record.choices))
        for choice, reason in zip(
            [c for c in record.choices if c.finish_reason or c.admitted_at],
            record.finish_reasons(),
            strict=True,
        ):
            self._counter("request_success_total").labels(self._model, reason).inc()
            if choice.admitted_at:
                self._choice_ended(choice)

    def refused(self, record: RequestRecord) -> None:
        """An HTTP request is over; also one that never reached the app."""
        method = record.method if record.method in _METHODS else "other"
        status = record.status or CLIENT_LEFT
        self._counter("http_requests_total").labels(method, record.route, status).inc()
        if record.error_code is not None:
            self._counter("errors_total").labels(record.error_code).inc()

    def _choice_ended(self, choice: Choice) -> None:
        self._histogram("e2e_request_latency_seconds").observe(monotonic() - choice.arrived_at)
        self._histogram("request_prompt_tokens").observe(choice.prompt_tokens)
        self._histogram("request_generation_tokens").observe(choice.output_tokens)
        self._histogram("request_params_max_tokens").observe(choice.max_tokens)
        if choice.finish_reason:
            self._counter("prefix_cache_queries_total").labels(self._model).inc(choice.prompt_tokens)
            self._counter("prefix_cache_hits_total").labels(self._model).inc(choice.cached_tokens)
        if not choice.first_at:
            return
        decoding = choice.last_at - choice.first_at
        self._histogram("request_prefill_time_seconds").observe(choice.first_at - choice.admitted_at)
        self._histogram("request_decode_time_seconds").observe(decoding)
        self._histogram("request_inference_time_seconds").observe(choice.last_at - choice.admitted_at)
        if choice.drawn > choice.first_drawn:
            each = decoding / (choice.drawn - choice.first_drawn)
            self._histogram("request_time_per_output_token_seconds").observe(each)

    def _counter(self, name: str) -> Counter:
        made = self._made[name]
        assert isinstance(made, Counter)
        return made

    def _histogram(self, name: str) -> Histogram:
        made = self._made[name]
        assert isinstance(made, Histogram)
        return made.labels(self._model)


def _make(row: MetricRow, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    if row.kind == "histogram":
        return Histogram(row.name, row.help, row.labels, registry=registry, buckets=row.buckets)
    kind = Counter if row.kind == "counter" else Gauge
    return kind(row.name, row.help, row.labels, registry=registry)
