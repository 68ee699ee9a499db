"""`python -m bench [SUITE…]`: measure, print, write the JSON, and say by the exit status whether the floors hold."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from bench import about, harness, report

RESULTS = Path(__file__).parent / "results" / "latest.json"
SUITES = (
    *(
        "roundtrip",
        "spawn",
        "crowd",
        "host",
        "piglet",
        "ingest",
        "recorder",
        "startup",
        "sdk",
        "boxes",
        "store",
        "resident",
        "app",
        "agents",
        "plugins",
    ),
)


def main(names: list[str]) -> None:
    if unknown := set(names) - set(SUITES):
        sys.exit(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    machine = about.machine()  # before pinning: it counts the cores
    harness.pin()
    sections = []
    for name in names or SUITES:
        section = import_module(f"bench.suites.{name}").run()
        print(report.text(section), flush=True)
        sections.append(section)
        keep(machine, sections)  # at once: the next one may fail
    floors = [floor for section in sections for floor in section.floors]
    counts = {verdict: sum(floor.verdict == verdict for floor in floors) for verdict in ("pass", "FAIL", "not measured")}
    print(
        f"\n{', '.join(f'{count} {verdict}' for verdict, count in counts.items() if count)}; written: bench/results/{RESULTS.name}"
    )
    sys.exit(counts["FAIL"] > 0)


def keep(machine: object, sections: list[report.Section]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"about": machine, "sections": [section.to_json() for section in sections]}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
