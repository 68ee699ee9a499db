"""`python -m bench.page`: the latest complete run becomes `docs/performance.json`, and that becomes `docs/performance.md`.

Two steps, so that a test can hold the page to its numbers: nobody edits either by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import fill
from typing import Any

from bench.__main__ import RESULTS, SUITES
from bench.report import Floor, Section, Table, cells

__all__ = ["lacks", "main", "markdown", "rounded"]

DOCS = Path(__file__).parents[1] / "docs"
WIDTH = 132
DIGITS = 4  # more than the noise of any run

HEAD = """\
# Performance

<!-- Made by `make bench-page` from performance.json; a test holds it to that. Edit neither by hand. -->

## What Serai promises

Serai stands between programs, so what it adds must be small next to what the machine itself takes. Each promise is a floor: a
ratio next to raw C, which does the same with nothing around it, or next to a peer, which is what one would use otherwise. `make
bench` measures all of them and fails when one does not hold.
"""

MEASURED = """\
## How it was measured

Every number comes from a fresh process. All of them, hosts and children, share one core: that measures software, not how long a
second core takes to wake. Repetitions are interleaved, one of each host in turn, so that a noisy moment hits all alike; the numbers
are medians. Compare ratios: the times belong to this machine. "CPU" is user and system time of the host's own process, and is the
steadiest number. The peers are what `make bench-peers` installed, in an environment of their own; what they do more than Serai, or
less, is said in each section.
"""

REPEAT = """\
## How to repeat it

```sh
make bench-peers   # once: installs the peers into an environment of their own
make bench         # some minutes, best on a machine that does nothing else; the exit status tells whether the floors hold
make bench-page    # writes this page and performance.json from that run
```

One question alone: `python -m bench ingest`. The suites are in `bench/suites`, one file per question, and the programs that they
run in `bench/workers` and `bench/c`.
"""

MACHINE = {"date": "Date", "cpu": "CPU", "cores": "Cores", "memory_gib": "Memory, GiB", "kernel": "Linux"}
MACHINE |= {"python": "Python", "peers": "Peers"}


def lacks(run: dict[str, Any]) -> list[str]:
    """What a run lacks to be published: a suite, or a floor that holds."""
    sections = [Section.from_json(section) for section in run["sections"]]
    names = sorted({section.name for section in sections})
    few = [f"{len(names)} of {len(SUITES)} suites ran: {', '.join(names)}"] if len(names) < len(SUITES) else []
    return few + [f"{floor.verdict}  {floor}" for section in sections for floor in section.floors if floor.verdict != "pass"]


def rounded(value: Any) -> Any:
    """The same with every number cut to the digits that mean something."""
    match value:
        case float() | int():
            return type(value)(float(f"{value:.{DIGITS}g}"))
        case dict():
            return {key: rounded(item) for key, item in value.items()}
        case list():
            return [rounded(item) for item in value]
        case _:
            return value


def markdown(run: dict[str, Any]) -> str:
    """The page of a run."""
    sections = [Section.from_json(section) for section in run["sections"]]
    machine = [["", "This run"], *([MACHINE.get(key, key), str(value)] for key, value in run["about"].items())]
    parts = [HEAD, _promises(sections), MEASURED, _grid(machine), *map(_section, sections), REPEAT]
    return "\n".join(parts)


def _promises(sections: list[Section]) -> str:
    rows = [[section.name, *_promise(floor)] for section in sections for floor in section.floors]
    return _grid([["", "Promise", "Floor", "Measured"], *rows], words=2)


def _promise(floor: Floor) -> list[str]:
    measured = "-" if floor.measured is None else f"{floor.measured:.2f}{floor.unit}"
    return [floor.what, f"{floor.sense} {floor.limit:g}{floor.unit}", measured]


def _section(section: Section) -> str:
    notes = [_paragraph(note) for note in section.note.strip().split("\n\n")]
    floors = [f"- {floor.verdict}: {floor}\n" for floor in section.floors]
    return "\n".join([f"## {section.name}\n", *notes, *map(_table, section.tables), "".join(floors)])


def _paragraph(text: str) -> str:
    """Wrapped anew; nothing is broken inside a word, so that names stay whole."""
    return fill(" ".join(text.split()), WIDTH, break_on_hyphens=False, break_long_words=False) + "\n"


def _table(table: Table) -> str:
    return f"**{table.title}**\n\n{_grid(cells(table))}"


def _grid(rows: list[list[str]], words: int = 1) -> str:
    """A table; its first columns are words, the others numbers."""
    head, *lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows]
    rule = "|---" * words + "|--:" * (len(rows[0]) - words) + "|\n"
    return "".join([head, rule, *lines])


def main() -> None:
    if not RESULTS.exists():
        sys.exit("there is no run to publish: `make bench` first")
    run = json.loads(RESULTS.read_text())
    if problems := lacks(run):
        sys.exit("this run is not published:\n" + "\n".join(f"  {problem}" for problem in problems))
    run = rounded(run)
    (DOCS / "performance.json").write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    (DOCS / "performance.md").write_text(markdown(run))
    print("written: docs/performance.json, docs/performance.md")


if __name__ == "__main__":
    main()
