"""`serai doctor`: all that Serai needs here on one page, fit for a bug report."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from serai.app.doctor import checks
from serai.app.doctor.checks import Check, CheckLine, DoctorContext
from serai.app.doctor.redaction import Redactor
from serai.cli import console
from serai.cli.options import JSON, GuestOptions, add_guest_options
from serai.errors import SeraiError
from serai.plain_text import escape_line
from serai.record import secret_patterns

_COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}
_SAFE = "This page can be shown to others: it has no key, no value of a variable, and neither your name nor the machine's."


@click.command()
@add_guest_options
@JSON
def doctor(*, options: GuestOptions, as_json: bool) -> None:
    """Look at all that Serai needs here: what works, what would be used and why, what is broken.

    Starts no guest and sends nothing. The status is 1 when something is broken. What is printed can be shown to others.
    """
    discreet = Redactor(os.environ)
    context = DoctorContext(cwd=str(options.cwd), environ=os.environ, find=options.find)
    found = [
        (title, [_redact_line(line, discreet) for line in _run_check(check, context)]) for title, check in checks.CHECKS.items()
    ]
    marks = [line.mark for _, lines in found for line in lines]
    summary = {mark: marks.count(mark) for mark in ("problem", "note")}
    page = _render_json(found, summary) if as_json else _render_page(found, summary)
    click.echo(secret_patterns.mask_text("\n".join(page)))
    if summary["problem"]:
        raise click.exceptions.Exit(1)


def _run_check(check: Check, context: DoctorContext) -> Iterator[CheckLine]:
    """What one part has to say; its failure is a line like any other."""
    try:
        yield from check(context)
    except SeraiError as error:
        yield checks.build_error_line(error)
    except Exception as error:  # also a defect of ours: then this page tells of it
        yield CheckLine("problem", f"it could not be looked at: {type(error).__name__}: {error}")


def _redact_line(line: CheckLine, discreet: Redactor) -> CheckLine:
    return CheckLine(line.mark, escape_line(discreet(line.text)), escape_line(discreet(line.hint)))


Found = list[tuple[str, list[CheckLine]]]


def _render_page(found: Found, summary: dict[str, int]) -> Iterator[str]:
    for title, lines in found:
        yield click.style(title, bold=True)
        for line in lines:
            yield f"  {click.style(f'{line.mark:8}', fg=_COLOURS[line.mark])} {line.text}"
            if line.hint:
                yield f"  {'':8} {line.hint}"
    problems, notes = summary["problem"], summary["note"]
    yield ""
    broken = f"{problems} {'problem' if problems == 1 else 'problems'}" if problems else "nothing is broken"
    yield broken + (f", {notes} {'note' if notes == 1 else 'notes'}" if notes else "")
    yield _SAFE


def _render_json(found: Found, summary: dict[str, int]) -> Iterator[str]:
    for title, lines in found:
        for line in lines:
            form: dict[str, Any] = {"section": title, "mark": line.mark, "text": line.text}
            yield console.dump_json(form | ({"hint": line.hint} if line.hint else {}))
    yield console.dump_json({"problems": summary["problem"], "notes": summary["note"], "about": _SAFE})
