"""What a suite says: tables of samples, and floors that hold or not. Printed, written as JSON, and turned into a page."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from bench.harness import Sample

__all__ = ["Column", "Floor", "Section", "Table", "cells", "text"]


class Column(NamedTuple):
    """A number of the samples: its key, its heading, and its format."""

    key: str
    head: str
    form: str = ",.1f"


class Table(NamedTuple):
    """Samples by host, the physical limit first."""

    title: str
    columns: tuple[Column, ...]
    rows: dict[str, Sample]

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Table:
        return cls(table["title"], tuple(Column(*column) for column in table["columns"]), table["rows"])


class Floor(NamedTuple):
    """The worst ratio that ships. `measured` is None when who it is compared with is not installed."""

    what: str
    measured: float | None
    sense: Literal["at most", "at least"]
    limit: float
    unit: str = "x"

    @property
    def verdict(self) -> Literal["pass", "FAIL", "not measured"]:
        if self.measured is None:
            return "not measured"
        return "pass" if (self.measured <= self.limit if self.sense == "at most" else self.measured >= self.limit) else "FAIL"

    @classmethod
    def from_json(cls, floor: dict[str, Any]) -> Floor:
        return cls(**{name: floor[name] for name in cls._fields})

    def __str__(self) -> str:
        measured = "needs `make bench-peers`" if self.measured is None else f"{self.measured:.2f}{self.unit}"
        return f"{self.what}: {measured} ({self.sense} {self.limit:g}{self.unit})"


class Section(NamedTuple):
    """One suite's results. `note` says what was done and what to keep in mind, for the page."""

    name: str
    note: str
    tables: list[Table]
    floors: list[Floor]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "note": self.note,
            "tables": [{"title": t.title, "columns": [list(c) for c in t.columns], "rows": t.rows} for t in self.tables],
            "floors": [{**floor._asdict(), "verdict": floor.verdict} for floor in self.floors],
        }

    @classmethod
    def from_json(cls, section: dict[str, Any]) -> Section:
        tables, floors = map(Table.from_json, section["tables"]), map(Floor.from_json, section["floors"])
        return cls(section["name"], section["note"], list(tables), list(floors))


def cells(table: Table) -> list[list[str]]:
    """The table as text, heading first; a number that a host does not have is a dash."""
    head = ["", *(column.head for column in table.columns)]
    rows = [
        [host, *(format(sample[column.key], column.form) if column.key in sample else "-" for column in table.columns)]
        for host, sample in table.rows.items()
    ]
    return [head, *rows]


def text(section: Section) -> str:
    """For the terminal."""
    lines = [f"\n{section.name}"]
    for table in section.tables:
        rows = cells(table)
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines += ["", f"  {table.title}"]
        lines += [
            "    "
            + "  ".join(cell.ljust(w) if n == 0 else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        ]
    lines += ["", *(f"  {floor.verdict}  {floor}" for floor in section.floors)]
    return "\n".join(lines)
