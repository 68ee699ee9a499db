"""The `--help` of every command, found by following the `Commands:` section of each page."""

from __future__ import annotations

from tests.contract.place import Place

__all__ = ["read_pages"]


def read_pages(place: Place) -> dict[str, str]:
    """Returns the help by command path: `guest grant` for `serai guest grant --help`; `serai` for the program itself."""
    found: dict[str, str] = {}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        path = waiting.pop()
        ran = place(*path, "--help")
        assert (ran.status, ran.stderr) == (0, ""), ran
        found[" ".join(path) or "serai"] = ran.stdout
        waiting += [(*path, name) for name in _parse_commands(ran.stdout)]
    return dict(sorted(found.items()))


def _parse_commands(page: str) -> list[str]:
    rows = page.partition("\nCommands:\n")[2].splitlines()
    return [row.split()[0] for row in rows if row.startswith("  ") and not row.startswith("   ")]
