"""Random service with host memory and disk behind tiny pools: evicted and brought back all the time, damaged
in between, and every stream equals the oracle."""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from pathlib import Path

from engine_harness import request
from service_models import LONG, MODELS, SPECULATIVE, VOCABULARY
from tiered_harness import TieredHarness, make_stores

from flare.scheduler import Settings
from flare.testing.hash_model import HashModel

TIGHT = [
    HashModel(context=40, page_tokens=4, pages=17, snapshot_rows=3, vocab_size=VOCABULARY),
    HashModel(context=40, page_tokens=16, pages=5, concurrency=2, decode_lanes=(2,), vocab_size=VOCABULARY),
    HashModel(context=40, page_tokens=4, pages=14, vocab_size=VOCABULARY, host_fed=True),
    HashModel(context=150, page_tokens=4, pages=50, snapshot_rows=4, vocab_size=VOCABULARY),
]
TIERS = [
    {"host_blocks": 10},
    {"host_blocks": 60},
    {"disk_blocks": 30},
    {"host_blocks": 6, "disk_blocks": 60},
]


def damage(rng: random.Random, directory: Path) -> None:
    """Something happens to one file."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    if not files:
        return
    path = rng.choice(files)
    data = path.read_bytes()
    match rng.randrange(4):
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(data[: rng.randrange(len(data))])
        case 2:
            place = rng.randrange(len(data))
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :])
        case 3:
            other = rng.choice(files).read_bytes()
            path.write_bytes(other)


def serve(seed: int, directory: Path) -> Counter[str]:
    rng = random.Random(seed)
    model = rng.choice(rng.choice([MODELS, TIGHT, LONG, SPECULATIVE]))
    tiers = rng.choice(TIERS)
    stores = make_stores(model, **tiers, directory=directory)
    harness = TieredHarness(
        model,
        stores,
        max_frames=rng.choice([1, 2]),
        proposal_key=rng.choice([None, 1, 2]),
        settings=Settings(
            max_waiting=6, max_passes=rng.choice([0, 1, 16]), inter_token_ms=rng.choice([0.01, 0.3, 150.0])
        ),
    )
    histories: list[tuple[int, ...]] = [()]
    count = 0
    damages = rng.random() < 0.3
    try:
        for _ in range(rng.randrange(10, 80)):
            kind = rng.random()
            if kind < 0.35:
                count += 1
                base = rng.choice(histories[-12:])
                base = base[: len(base) - rng.choice([0, 0, 0, 1, 4, 9])]
                prompt = base + tuple(
                    rng.choices(range(VOCABULARY), k=rng.choice([0, 0, 1, 2, 5, 17, 30, model.context // 3]))
                )
                prompt = prompt or (1,)
                harness.submit(
                    request(
                        f"r{count}",
                        prompt,
                        max_tokens=rng.choice([1, 2, 5, 12, 45]),
                        stops=tuple(rng.sample(range(VOCABULARY), rng.choice([0, 2]))),
                        seed=rng.getrandbits(64),
                        endpoints=tuple(
                            rng.randrange(1, model.context) for _ in range(rng.choice([0, 2, 4]))
                        ),
                    )
                )
                if len(prompt) < model.context:
                    histories += [prompt, prompt + tuple(harness.expected(f"r{count}"))]
            elif kind < 0.43 and count:
                harness.engine.cancel(f"r{rng.randrange(max(1, count - 4), count + 1)}")
            elif kind < 0.55:
                harness.restores.run_one()
            elif kind < 0.67:
                harness.saves.run_one()
            elif kind < 0.70 and damages:
                damage(rng, directory)
            elif kind < 0.97:
                for _ in range(rng.randrange(1, 12)):
                    harness.engine.step()
            else:
                harness.run()
                harness.check()
            harness.check_holders()
            assert all(store.used <= store.capacity for store in stores)
        harness.run()
        harness.check()
        harness.check_empty()
    finally:
        harness.close()
    assert not harness.scheduler.transferring
    counts = harness.transfers.counts
    return Counter(
        {
            "restores": counts.restores,
            "failed": counts.failed_restores,
            "saves": counts.saves,
            "host": sum(s.counts.hits for s in stores if s.name == "host"),
            "disk": sum(s.counts.hits for s in stores if s.name == "disk"),
            "evicted": sum(s.counts.evicted for s in stores),
            "faults": sum(s.counts.faults for s in stores),
        }
    )


def test_every_stream_is_right_whatever_tier_its_prefix_comes_from(tmp_path, caplog):
    """FLARE_SERVICES raises the number of services for a longer search."""
    totals: Counter[str] = Counter()
    for seed in range(int(os.environ.get("FLARE_SERVICES", "100"))):
        try:
            totals += serve(seed, tmp_path / str(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    print(totals)
    for name in ("restores", "saves", "host", "disk", "evicted", "failed", "faults"):
        assert totals[name] > 0, (name, totals)
