"""What the tests of the conformance checks for each dialect read in a report."""

from __future__ import annotations

from serai.testing.conformance.findings import Report


def find_rules(report: Report, status: str) -> set[str]:
    """The rules whose worst finding has this status."""
    return {rule for rule, worst in report.rules().items() if worst == status}
