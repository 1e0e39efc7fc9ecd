"""The tables of a GPU's measurements in benchmarks/RESULTS.md, from the files in benchmarks/results.

A table stands between `<!-- measured: NAME -->` and `<!-- end -->`; the text around it is written by hand. A
test fails when a table is not what the files say; `scripts/docs` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flare.bench.report import number
from flare.bench.result import Figure, ScenarioResult, read_result

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "benchmarks/RESULTS.md"
RESULTS = ROOT / "benchmarks/results"
_TABLE = re.compile(r"(<!-- measured: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
STREAMS = ("1 stream", "2 streams", "4 streams")
DECODER = "flare-h200-3b"
WRITTEN = "flare-h200-3b-as-written"  # with --no-trace


class Measured:
    """The figures of one file."""

    def __init__(self, scenarios: Mapping[str, ScenarioResult]) -> None:
        self._figures = {
            (name, figure.case, figure.measure): figure
            for name, scenario in scenarios.items()
            for figure in scenario.figures
        }

    def figure(self, scenario: str, case: str, measure: str) -> Figure | None:
        """One figure, None when it was not measured."""
        return self._figures.get((scenario, case, measure))

    def median(self, scenario: str, case: str, measure: str) -> float | None:
        """Its median."""
        figure = self.figure(scenario, case, measure)
        return None if figure is None else figure.median

    def cases(self, scenario: str) -> dict[str, list[Figure]]:
        """The figures of a scenario by case, in the order of the file."""
        found: dict[str, list[Figure]] = {}
        for (name, case, _), figure in self._figures.items():
            if name == scenario:
                found.setdefault(case, []).append(figure)
        return found


def measured(name: str) -> Measured:
    """The file `NAME.json`; nothing where there is none. Raises BenchmarkError for one of another format."""
    path = RESULTS / f"{name}.json"
    return Measured(read_result(path).scenarios if path.exists() else {})


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, all columns but the first to the right; rows without any number are left out."""
    kept = [row for row in rows if re.search(r"\d", "".join(row[1:]))]
    if not kept:
        return "Not measured yet.\n"
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *kept]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def shown(value: float | None) -> str:
    """Three digits, or a dash."""
    return "–" if value is None else number(value)


def ratio(above: float | None, below: float | None) -> str:
    """Two decimals, or a dash."""
    return "–" if above is None or not below else f"{above / below:.2f}"


def peers() -> str:
    """vLLM and Flare in one run, with modules captured as they are written: medians, and a ratio above 1
    where Flare is ahead. Beside them what is prepared by default, where another run has measured it."""
    written, peer, flare = measured(WRITTEN), measured("vllm-h200-3b"), measured(DECODER)
    wanted = [
        ("start to ready, s", "start", "warm", "start to ready, engine"),
        ("first token, 512 prompt tokens, ms", "cold", "512 tokens", "first token"),
        ("first token, 4,096 prompt tokens, ms", "cold", "4096 tokens", "first token"),
        ("first token, 4,096 cached and 11 new, ms", "extend", "with a tail", "first token"),
    ]
    for case in STREAMS:
        wanted += [
            (f"{case}, tok/s", "decode", case, "total"),
            (f"{case}, inter-token p50, ms", "decode", case, "inter-token p50"),
            (f"{case}, inter-token p99, ms", "decode", case, "inter-token p99"),
        ]
    beside = "4096 tokens beside 2 streams"
    wanted += [
        ("4,096 tokens beside 2 streams: longest pause, ms", "mixed", beside, "inter-token during, max"),
        ("4,096 tokens beside 2 streams: first token, ms", "mixed", beside, "first token"),
    ]
    rows = []
    for text, *place in wanted:
        ours, theirs = written.figure(*place), peer.figure(*place)
        pair = (theirs, ours) if ours is None or ours.better == "lower" else (ours, theirs)
        medians = [None if figure is None else figure.median for figure in pair]
        cells = [None if figure is None else figure.median for figure in (theirs, ours)]
        rows.append([text, *map(shown, cells), ratio(*medians), shown(flare.median(*place))])
    return table(("", "vLLM 0.25", "Flare, as written", "ratio", "Flare, by default"), rows)


def floor() -> str:
    """Decoding against the device alone and against reading memory."""
    rows = []
    for name, label in (("flare-h200-135m", "135M"), (DECODER, "3B"), (WRITTEN, "3B as written")):
        flare = measured(name)
        for case in STREAMS:
            rate = flare.median("decode", case, "per stream")
            served = None if rate is None else 1000 / rate
            graph = flare.median("replay", case, "graphs back to back")
            reading = flare.median("replay", case, "time to read them")
            cells = (served, graph, reading)
            rows.append([f"{label}, {case}", *map(shown, cells), ratio(served, graph), ratio(graph, reading)])
    header = ("ms per step", "served", "graphs alone", "reading", "served / graphs", "graphs / reading")
    return table(header, rows)


def prefill() -> str:
    """First tokens, prefill and pauses beside it."""
    file = measured("flare-h200-3b-long")
    lengths = sorted(int(case.split()[0]) for case in file.cases("cold"))
    rows = []
    for tokens in lengths:
        case, beside = f"{tokens} tokens", f"{tokens} tokens beside 2 streams"
        for text, *place in (
            ("first token, ms", "cold", case, "first token"),
            ("prefill, tok/s", "cold", case, "prefill"),
            ("beside 2 streams: first token, ms", "mixed", beside, "first token"),
            ("beside 2 streams: inter-token p50, ms", "mixed", beside, "inter-token during, p50"),
            ("beside 2 streams: inter-token p99, ms", "mixed", beside, "inter-token during, p99"),
        ):
            rows.append([f"{tokens:,} tokens, {text}", shown(file.median(*place))])
    rows.append(
        [
            "4,096 cached tokens and 11 new, first token, ms",
            shown(file.median("extend", "with a tail", "first token")),
        ]
    )
    rows.append(
        ["4,096 cached tokens again, first token, ms", shown(file.median("repeat", "again", "first token"))]
    )
    for case in file.cases("replay"):
        if "chunks" in case:
            tokens, size = int(case.split()[0]), int(case.split()[-1])
            what = f"{tokens:,} tokens in chunks of {size:,}, the GPU alone, ms"
            rows.append([what, shown(file.median("replay", case, "on the device"))])
    return table(("", "3B"), rows)


def steps() -> str:
    """The host's parts of a decode step of the 3B decoder, and what the device waited between two."""
    file = measured(DECODER)
    rows = []
    for part in file.cases("steps"):
        pairs = [[file.median("steps", part, f"{case} p{p}") for p in (50, 99)] for case in STREAMS]
        rows.append([part, *(f"{shown(median)} ({shown(tail)})" for median, tail in pairs)])
    return table(("µs, p50 (p99)", *STREAMS), rows)


def start() -> str:
    """From start to ready, cold and warm."""
    rows = []
    for name, label in (("flare-h200-135m", "135M"), (DECODER, "3B"), (WRITTEN, "3B as written")):
        flare = measured(name)
        for case in ("cold", "warm"):
            cells = [
                flare.median("start", case, measure)
                for measure in ("read and verify", "start to ready, engine", "start to ready, HTTP")
            ]
            rows.append([f"{label}, {case}", *map(shown, cells)])
    return table(("s", "read and verify alone", "engine ready", "HTTP ready"), rows)


def memory() -> str:
    """What the serving process holds when it is ready."""
    files = [measured("flare-h200-135m"), measured(WRITTEN)]
    measures = [figure.measure for figure in files[1].cases("start").get("memory", ())]
    rows = []
    for measure in measures:
        figures = [file.figure("start", "memory", measure) for file in files]
        unit = next(figure.unit for figure in figures if figure is not None)
        rows.append([f"{measure}, {unit}", *(shown(None if f is None else f.median) for f in figures)])
    return table(("", "135M", "3B as written"), rows)


def http() -> str:
    """The 3B decoder, modules as written, at the engine's client and over HTTP."""
    file = measured(WRITTEN)
    wanted = [
        (f"first token, {n} prompt tokens, ms", "cold", f"{n} tokens", "first token") for n in (512, 4096)
    ]
    for case in STREAMS:
        wanted += [
            (f"{case}, tok/s", "decode", case, "total"),
            (f"{case}, inter-token p50, ms", "decode", case, "inter-token p50"),
            (f"{case}, inter-token p99, ms", "decode", case, "inter-token p99"),
        ]
    rows = []
    for text, name, *place in wanted:
        cells = [file.median(scenario, *place) for scenario in (name, f"http: {name}")]
        rows.append([text, *map(shown, cells)])
    return table(("", "engine's client", "HTTP"), rows)


def kernels() -> str:
    """Where a decode step of the 3B decoder goes, modules as written."""
    file = measured(WRITTEN)
    programs = ("decode.1", "decode.4")
    cases = file.cases("kernels")
    rows = []
    for figure in cases.get(programs[0], ()):
        unit = f", {figure.unit}" if figure.unit else ""
        medians = [file.median("kernels", program, figure.measure) for program in programs]
        rows.append([f"{figure.measure}{unit}", *map(shown, medians)])
    operators = dict.fromkeys(case.split(": ", 1)[1] for case in cases if ": " in case)
    for operator in operators:
        cells = []
        for program in programs:
            time, count = (
                file.median("kernels", f"{program}: {operator}", measure) for measure in ("time", "kernels")
            )
            cells.append("–" if time is None else f"{shown(time)} ({shown(count)})")
        rows.append([f"{operator}, µs (kernels)", *cells])
    return table(("", *programs), rows)


TABLES: dict[str, Callable[[], str]] = {
    "peers": peers,
    "floor": floor,
    "prefill": prefill,
    "steps": steps,
    "start": start,
    "memory": memory,
    "http": http,
    "kernels": kernels,
}


def current(page: str) -> str:
    """The page with every table as the files have it. Raises KeyError for a table of another name."""
    return _TABLE.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text()))
