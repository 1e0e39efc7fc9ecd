"""Every metric of `/metrics`: one list that the code registers and the documentation repeats.

Names and meanings follow vLLM where it has the number (`vllm/v1/metrics/loggers.py`), under our own prefix;
`alias` is vLLM's name, under which the same series is exported a second time, so that dashboards and
benchmark tools made for vLLM find it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

_MODEL = ("model_name",)

# From a cached decode step of a small model on a fast device up to minutes of queueing.
LATENCY_BUCKETS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
STEP_BUCKETS = (
    *(0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0),
    *(2.5, 10.0),
)
TOKEN_BUCKETS = tuple(float(m * 10**e) for e in range(7) for m in (1, 2, 5))
CHOICE_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 128.0)


@dataclass(frozen=True, slots=True)
class MetricRow:
    """`name` as a scraper sees it (a counter with `_total`), `alias` under `vllm:` or None."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    help: str
    alias: bool = False
    buckets: tuple[float, ...] = ()

    @property
    def alias_name(self) -> str | None:
        """vLLM's name of the series."""
        return "vllm:" + self.name.partition(":")[2] if self.alias else None


def _histogram(name: str, help: str, buckets: tuple[float, ...] = LATENCY_BUCKETS) -> MetricRow:
    unit = "seconds" if name.endswith("_seconds") else "tokens" if name.endswith("_tokens") else "choices"
    return MetricRow(f"flare:{name}", "histogram", unit, _MODEL, help, True, buckets)


def _gauge(name: str, unit: str, help: str, alias: bool = False) -> MetricRow:
    return MetricRow(f"flare:{name}", "gauge", unit, _MODEL, help, alias)


# Kept by the front process, from what happens to requests.
REQUEST_METRICS = (
    MetricRow(
        "flare:request_success_total",
        "counter",
        "choices",
        ("model_name", "finished_reason"),
        "Admitted choices that ended: stop, length, abort (client gone, shutdown, time limit) or error.",
        True,
    ),
    MetricRow(
        "flare:prompt_tokens_total",
        "counter",
        "tokens",
        _MODEL,
        "Prompt tokens of choices that began output.",
        True,
    ),
    MetricRow("flare:generation_tokens_total", "counter", "tokens", _MODEL, "Tokens drawn.", True),
    MetricRow(
        "flare:prefix_cache_queries_total",
        "counter",
        "tokens",
        _MODEL,
        "Prompt tokens that were looked up in the cache.",
        True,
    ),
    MetricRow(
        "flare:prefix_cache_hits_total",
        "counter",
        "tokens",
        _MODEL,
        "Prompt tokens whose state was reused (cached tokens).",
        True,
    ),
    _histogram("time_to_first_token_seconds", "From the request's arrival to the first token."),
    _histogram(
        "inter_token_latency_seconds",
        "Between tokens of one choice, as the front process takes them.",
        STEP_BUCKETS,
    ),
    _histogram(
        "request_time_per_output_token_seconds", "Mean time per token behind a choice's first.", STEP_BUCKETS
    ),
    _histogram("e2e_request_latency_seconds", "From the request's arrival to the end of a choice."),
    _histogram("request_queue_time_seconds", "From submission to the engine to admission."),
    _histogram("request_prefill_time_seconds", "From admission to the first token."),
    _histogram("request_decode_time_seconds", "From the first token to the last."),
    _histogram("request_inference_time_seconds", "From admission to the last token."),
    _histogram("request_prompt_tokens", "Prompt tokens of a choice.", TOKEN_BUCKETS),
    _histogram("request_generation_tokens", "Output tokens of a choice.", TOKEN_BUCKETS),
    _histogram("request_params_max_tokens", "Output limit of a choice.", TOKEN_BUCKETS),
    _histogram("request_params_n", "Choices of a request.", CHOICE_BUCKETS),
    MetricRow(
        "flare:http_requests_total",
        "counter",
        "requests",
        ("method", "handler", "status"),
        "HTTP requests that ended; status 499 is a client that left before the response started.",
    ),
    MetricRow(
        "flare:errors_total",
        "counter",
        "requests",
        ("code",),
        "Requests that were answered with an error, by code.",
    ),
    MetricRow(
        "flare:client_disconnects_total",
        "counter",
        "requests",
        (),
        "Requests whose client left before the end.",
    ),
    MetricRow("flare:http_requests_open", "gauge", "requests", (), "HTTP requests that have not ended."),
)


def _total(name: str, unit: str, help_text: str, alias: bool = False) -> MetricRow:
    return MetricRow(f"flare:{name}_total", "counter", unit, _MODEL, help_text, alias)


# Read from the engine when somebody asks. Absent while it loads, after it died, and when it does not answer.
ENGINE_METRICS = (
    _gauge("num_requests_running", "choices", "Choices that hold their resources.", True),
    _gauge("num_requests_waiting", "choices", "Choices that wait for admission.", True),
    _gauge("kv_cache_usage_perc", "ratio", "Cache pages in use, 0 to 1.", True),
    _gauge("total_pages", "pages", "Cache pages."),
    _gauge(
        "free_pages", "pages", "Cache pages a request could get: unused, or cached and not continued from."
    ),
    _gauge("free_rows", "rows", "Rows of state a request could get, likewise."),
    _gauge("cached_pages", "pages", "Cache pages that checkpoints hold."),
    _gauge("checkpoints", "checkpoints", "Prefixes that can be continued from."),
    _total("checkpoints_published", "checkpoints", "Checkpoints published."),
    _total("checkpoints_thinned", "checkpoints", "Interior checkpoints given up; what follows them stays."),
    _total("checkpoints_evicted_for_pages", "checkpoints", "Endpoints given up for want of pages."),
    _total("checkpoints_evicted_for_rows", "checkpoints", "Endpoints given up for want of snapshot rows."),
    _total("captures_skipped", "checkpoints", "Checkpoints not taken, because too much was in use."),
    _total("num_preemptions", "preemptions", "Streams put back into the queue for want of pages.", True),
    _gauge("host_cache_bytes", "bytes", "Memory that checkpoints hold in the host cache."),
    _gauge("disk_cache_bytes", "bytes", "Files that checkpoints hold in the disk cache."),
    _total("host_cache_hits", "checkpoints", "Restorations from host memory that began."),
    _total("disk_cache_hits", "checkpoints", "Restorations from disk that began."),
    _total("host_cache_evicted", "checkpoints", "Checkpoints given up in host memory for want of room."),
    _total("disk_cache_evicted", "checkpoints", "Checkpoints given up on disk for want of room."),
    _total("cache_restored_tokens", "tokens", "Tokens whose state came back from host memory or disk."),
    _total("cache_failed_restores", "checkpoints", "Restorations that failed: damaged or vanished files."),
    _total("cache_failed_writes", "checkpoints", "Checkpoints that the system refused to write."),
    _gauge("free_slots", "slots", "Request slots that are free."),
    _gauge(
        "step_period_seconds",
        "seconds",
        "Median period of the last 512 steady decode steps; 0 before the first.",
    ),
    _gauge("program_seconds", "seconds", "Median device time of the decode programs in them."),
    _total(
        "device_growth",
        "calls",
        "Calls that took memory, kernels or graphs on a GPU that was ready; 0 unless there is a bug.",
    ),
    _gauge("engine_resident_memory_bytes", "bytes", "Resident memory of the engine process."),
    _gauge("engine_open_fds", "descriptors", "Open files of the engine process."),
    MetricRow("flare:engine_steps_total", "counter", "steps", _MODEL, "Programs that the engine completed."),
)

# Known whatever the engine does.
STATE_METRICS = (
    _gauge("engine_up", "bool", "1 while the engine takes requests."),
    MetricRow(
        "flare:engine_restarts_total",
        "counter",
        "restarts",
        _MODEL,
        "Engine processes started after the first.",
    ),
    MetricRow(
        "flare:build_info",
        "gauge",
        "info",
        ("version", "core_digest", "core_format"),
        "Always 1; what is served.",
    ),
)

# The front process itself, with the names that every Prometheus client uses (read from /proc, so on Linux).
PROCESS_METRICS = (
    MetricRow("process_resident_memory_bytes", "gauge", "bytes", (), "Resident memory."),
    MetricRow("process_virtual_memory_bytes", "gauge", "bytes", (), "Virtual memory."),
    MetricRow("process_cpu_seconds_total", "counter", "seconds", (), "CPU time used."),
    MetricRow("process_start_time_seconds", "gauge", "seconds", (), "Start, since the epoch."),
    MetricRow("process_open_fds", "gauge", "descriptors", (), "Open files and sockets."),
    MetricRow("process_max_fds", "gauge", "descriptors", (), "Limit of open files."),
)

METRICS = (*REQUEST_METRICS, *ENGINE_METRICS, *STATE_METRICS, *PROCESS_METRICS)
