"""Writes tests/data/json-schema-suite.json from the unpacked package. Run by scripts/schema-suite."""

from __future__ import annotations

import json
import sys
from pathlib import Path

TARGET = Path(__file__).parents[1] / "data" / "json-schema-suite.json"


def main(package: Path, name: str) -> None:
    """One line per group of cases: a schema, and instances that are valid or not."""
    lines = []
    for draft in ("draft3", "draft4"):
        for path in sorted((package / "tests" / draft).rglob("*.json")):
            where = path.relative_to(package / "tests").with_suffix("").as_posix()
            for group in json.loads(path.read_text()):
                cases = [[case["description"], case["data"], case["valid"]] for case in group["tests"]]
                line = {
                    "group": f"{where}: {group['description']}",
                    "schema": group["schema"],
                    "cases": cases,
                }
                lines.append(json.dumps(line))
    header = json.dumps({"source": name, "license": (package / "LICENSE").read_text()})
    body = ",\n".join(lines)
    TARGET.write_text(f'{{"package": {header},\n"groups": [\n{body}\n]}}\n')
    print(f"{TARGET.name}: {len(lines)} schemas, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
