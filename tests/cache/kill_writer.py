"""Kills a process that writes entries, again and again, and looks at what it left: `kill_writer.py DIRECTORY
COUNT SEED`. Prints one JSON object. A program of its own, because it forks, which a process with threads must
not do."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from store_contents import CORE, Checkpoint

from flare.cache import PrefixIdentity
from flare.cache.stores import CoreState, DiskStore

CAPACITY = 600_000
# Blocks of a size that takes a few writes, so that kills hit the middle of files.
BIG = CoreState(CORE.identity, page_tokens=4, page_bytes=1 << 14, row_bytes=3 << 14)


def history(rng: random.Random) -> list[int]:
    """One of few long histories, cut anywhere: entries share pages, and the bound drops some all the time."""
    return [rng.randrange(3)] * 4 + [rng.randrange(2)] * rng.randrange(1, 40)


def write_for_ever(directory: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = DiskStore(directory, BIG, CAPACITY)
    while True:
        checkpoint = Checkpoint(history(rng), BIG)
        store.put(checkpoint.entry, checkpoint)


def check(directory: Path, seen: Counter[str]) -> None:
    """Open what was left; every entry is whole and right, and nothing else lies around."""
    for path in directory.rglob("*"):
        seen["unfinished files"] += path.suffix == ".tmp"
    store = DiskStore(directory, BIG, CAPACITY)
    assert store.used <= CAPACITY
    entries = {entry.name: entry for entry in store._index.entries()}
    pages = {page.hex() for entry in entries.values() for page in entry.pages}
    core = directory / BIG.identity
    assert {path.name for path in (core / "pages").iterdir()} == pages
    assert {path.name for path in (core / "entries").iterdir()} == {name.hex() for name in entries}
    for first in range(3):
        for second in range(2):
            tokens = [first] * 4 + [second] * 40
            identity, limit = PrefixIdentity(b"root", tokens), len(tokens)
            while (entry := store.lookup(identity, limit)) is not None:
                with store.reading(entry) as reading:
                    Checkpoint(tokens[: entry.tokens], BIG).check(reading)
                del entries[entry.name]
                seen["entries"] += 1
                limit = entry.tokens - 1
    assert not entries, "an entry that nobody can have written"
    assert store.counts.faults == 0, "rename makes files whole"
    store.close()


def main(directory: Path, count: int, seed: int) -> None:
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for number in range(count):
        child = os.fork()
        if not child:
            try:
                write_for_ever(directory, seed + number)
            finally:
                os._exit(1)
        time.sleep(rng.uniform(0.002, 0.04))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the writer ended by itself"
        check(directory, seen)
        seen["kills"] += 1
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
