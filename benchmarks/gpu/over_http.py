"""The same over HTTP: over_http.py CORE --into FILE

`flare bench` of the core, whose scenarios are added as `http: NAME`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import result_file

from flare.bench.result import read_result

OPTIONS = (
    *("--scenario", "cold", "--scenario", "decode", "--scenario", "append"),
    *("--prompt-tokens", "512", "--prompt-tokens", "4096", "--decode-prompt-tokens", "512"),
    *("--output-tokens", "256", "--prefix-tokens", "4096", "--append-tokens", "11", "--duration", "20"),
)


def main() -> int:
    """Run `flare bench` and take its figures over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--label", required=True)
    parser.add_argument("--requests", default="5")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = Path(scratch) / "found.json"
        command = [sys.executable, "-m", "flare", "bench", str(options.core), *OPTIONS]
        command += ["--requests", options.requests, "--json", str(found)]
        status = subprocess.run(command).returncode
        if not found.exists():
            return status or 1
        for name, scenario in read_result(found).scenarios.items():
            result_file.add(options.into, options.label, f"http: {name}", scenario)
    return status


if __name__ == "__main__":
    sys.exit(main())
