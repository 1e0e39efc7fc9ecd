"""vLLM on the same geometry and GPU: peer_vllm.py --into FILE [--repeat N]

Weights are vLLM's dummies. The offline engine is asked without HTTP and without a tokenizer, as Flare's
engine client is: prompts of random tokens, one sampling, lengths and figures as in `serve.py`. Writes a file
of `flare bench`, but needs no package of Flare's: vLLM has its own environment. Figures of a file that is
there get more values.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import random
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

VOCAB, CONTEXT = 128256, 8192
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 8192,
    "vocab_size": VOCAB,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
}
PROMPT, OUTPUT, ANSWER, TAIL = 512, 256, 8, 11
LONG = 4096


class Figures:
    """What was measured, by scenario, case and measure; kept nowhere without a path."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._document: dict[str, Any] = {
            "format": "flare.bench",
            "version": 1,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": {"gpus": _gpus()},
            "settings": {},
            "scenarios": {},
        }
        if path is not None and path.exists():
            self._document = json.loads(path.read_text())

    def describe(self, **fields: Any) -> None:
        """Set fields of the file."""
        self._document |= fields

    def add(self, scenario: str, case: str, measure: str, value: float, unit: str, better: str) -> None:
        """One more value of a figure."""
        found = self._document["scenarios"].setdefault(
            scenario, {"figures": [], "requests": 0, "errors": {}, "notes": [], "seconds": 0.0}
        )
        for figure in found["figures"]:
            if (figure["case"], figure["measure"]) == (case, measure):
                figure["values"].append(value)
                return
        found["figures"].append(
            {"case": case, "measure": measure, "unit": unit, "better": better, "values": [value]}
        )

    def write(self) -> None:
        """Into the file."""
        assert self._path is not None
        self._path.write_text(json.dumps(self._document, indent=1) + "\n")


def _gpus() -> list[str]:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.splitlines()


class Streams:
    """Requests in flight at the engine, with the times at which their tokens arrived."""

    def __init__(self, engine: Any, make_params: Any) -> None:
        self._engine, self._make_params = engine, make_params
        self._number = 0
        self.sent: dict[str, float] = {}
        self.times: dict[str, list[float]] = defaultdict(list)
        self.counts: dict[str, list[int]] = defaultdict(lambda: [0])  # before and after every time
        self.ended: set[str] = set()

    def start(self, prompt: list[int], tokens: int) -> str:
        """Send a request; its name."""
        self._number += 1
        name = f"{id(self)}-{self._number}"
        self.sent[name] = time.perf_counter()
        self._engine.add_request(name, {"prompt_token_ids": prompt}, self._make_params(tokens))
        return name

    def step(self) -> None:
        """Wait for the engine's next outputs."""
        outputs = self._engine.step()
        now = time.perf_counter()
        for output in outputs:
            count = len(output.outputs[0].token_ids)
            if count > self.counts[output.request_id][-1]:
                self.times[output.request_id].append(now)
                self.counts[output.request_id].append(count)
            if output.finished:
                self.ended.add(output.request_id)

    def run(self, names: list[str]) -> None:
        """Until all of `names` have ended."""
        while not self.ended.issuperset(names):
            self.step()

    def abort(self, names: list[str]) -> None:
        """End `names` early."""
        self._engine.abort_request(names)
        while self._engine.has_unfinished_requests():
            self.step()


def percentile(values: list[float], percent: float) -> float:
    """Linear between neighbours."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def decode(engine: Any, params: Any, streams: int, figures: Figures) -> None:
    """`streams` at once, between the latest first and the earliest last token."""
    case = f"{streams} stream{'' if streams == 1 else 's'}"
    asked = Streams(engine, params)
    names = [asked.start(prompt(PROMPT), OUTPUT) for _ in range(streams)]
    asked.run(names)
    assert all(asked.counts[name][-1] == OUTPUT for name in names)
    begin = max(asked.times[name][0] for name in names)
    end = min(asked.times[name][-1] for name in names)
    inside = [[t for t in asked.times[name] if begin <= t <= end] for name in names]
    pauses = [1000 * (b - a) for times in inside for a, b in itertools.pairwise(times)]
    drawn = 0
    for name in names:
        counts = itertools.pairwise(asked.counts[name])
        for arrived, (before, after) in zip(asked.times[name], counts, strict=True):
            drawn += after - before if begin < arrived <= end else 0
    total = drawn / (end - begin)
    figures.add("decode", case, "total", total, "tok/s", "higher")
    figures.add("decode", case, "per stream", total / streams, "tok/s", "higher")
    figures.add("decode", case, "inter-token p50", percentile(pauses, 50), "ms", "lower")
    figures.add("decode", case, "inter-token p99", percentile(pauses, 99), "ms", "lower")


def first_token(engine: Any, params: Any, tokens: list[int]) -> float:
    """Milliseconds to the first token of a request."""
    asked = Streams(engine, params)
    name = asked.start(tokens, ANSWER)
    asked.run([name])
    return 1000 * (asked.times[name][0] - asked.sent[name])


def mixed(engine: Any, params: Any, figures: Figures) -> None:
    """A long prompt beside two running streams."""
    asked = Streams(engine, params)
    running = [asked.start(prompt(PROMPT), 2048) for _ in range(2)]
    while min(asked.counts[name][-1] for name in running) < 28:
        asked.step()
    long = asked.start(prompt(LONG), ANSWER)
    while not asked.times[long]:
        asked.step()
    begin, end = asked.sent[long], asked.times[long][0]
    for _ in range(2):
        asked.step()
    pauses = []
    for name in running:
        times = asked.times[name]
        pauses += [1000 * (b - a) for a, b in itertools.pairwise(times) if b > begin and a < end]
    asked.abort([*running, long])
    case = f"{LONG} tokens beside 2 streams"
    figures.add("mixed", case, "inter-token during, p50", percentile(pauses, 50), "ms", "lower")
    figures.add("mixed", case, "inter-token during, p99", percentile(pauses, 99), "ms", "lower")
    figures.add("mixed", case, "inter-token during, max", max(pauses), "ms", "lower")
    figures.add("mixed", case, "first token", 1000 * (end - begin), "ms", "lower")


def prompt(tokens: int) -> list[int]:
    """Random tokens."""
    return [random.randrange(10, VOCAB - 256) for _ in range(tokens)]


def measure(llm: Any, params: Any, figures: Figures, repeat: int) -> None:
    """Everything, `repeat` times, written after every time; once more before, which counts nowhere."""
    engine = llm.llm_engine
    for number in range(repeat + 1):
        sink = figures if number else Figures()
        for streams in (1, 2, 4):
            decode(engine, params, streams, sink)
        for length in (PROMPT, LONG):
            milliseconds = first_token(engine, params, prompt(length))
            sink.add("cold", f"{length} tokens", "first token", milliseconds, "ms", "lower")
            sink.add("cold", f"{length} tokens", "prefill", 1000 * length / milliseconds, "tok/s", "higher")
        prefix = prompt(LONG)
        sink.add("extend", "first", "first token", first_token(engine, params, prefix), "ms", "lower")
        for _ in range(3):
            tail = first_token(engine, params, prefix + prompt(TAIL))
            sink.add("extend", "with a tail", "first token", tail, "ms", "lower")
        if number:
            figures.write()
    for _ in range(repeat):
        mixed(engine, params, figures)
    figures.write()


def main() -> None:
    """Start and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    figures = Figures(options.into)
    began = time.perf_counter()
    import vllm
    from vllm import LLM, SamplingParams

    def params(tokens: int) -> Any:
        return SamplingParams(
            temperature=1.0, top_k=20, top_p=0.95, max_tokens=tokens, ignore_eos=True, detokenize=False
        )

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.json").write_text(json.dumps(CONFIG))
        llm = LLM(
            model=directory,
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=CONTEXT,
            max_num_seqs=8,
            gpu_memory_utilization=0.4,
            disable_log_stats=True,
        )
        ready = time.perf_counter() - began
        label = f"vLLM {vllm.__version__}"
        figures.describe(label=label, model="Llama-3.2-3B geometry, BF16", server_version=vllm.__version__)
        figures.add("start", "warm", "start to ready, engine", ready, "s", "lower")
        figures.write()
        measure(llm, params, figures, options.repeat)


if __name__ == "__main__":
    main()
