"""`python -m tests.support.skips REPORT...` fails when a test was skipped in one run and ran in none of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

__all__ = ["never_run"]


def never_run(reports: Iterable[Path]) -> dict[str, str]:
    """Returns the tests that no run of these (in pytest's JUnit format) did more with than skip them, with the reason."""
    skipped: dict[str, str] = {}
    run: set[str] = set()
    for report in reports:
        for case in ET.parse(report).getroot().iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            if (skip := case.find("skipped")) is None:
                run.add(name)
            else:
                skipped[name] = skip.get("message") or "no reason"
    return {name: reason for name, reason in skipped.items() if name not in run}


def main(paths: list[str]) -> int:
    never = never_run(map(Path, paths))
    for name, reason in sorted(never.items()):
        print(f"skipped in every run: {name}: {reason}")
    return 1 if never else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
