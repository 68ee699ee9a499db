"""Runs the rules of a guest's dialect, some at a time, and collects what they find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from serai.testing.conformance.findings import Finding, Patience, Report, Rule, RuleFailed, Skip, Unopened
from serai.testing.conformance.probe import ProbeTarget, Task
from serai.testing.guest_process import copy_environ, with_python
from serai.wire.process import build_guest_env

# One table of rules for each dialect: a module with `RULES`, and `examine` for what its rules are given.
TABLES = {"zot": "serai.testing.conformance.zot", "piglet": "serai.testing.conformance.piglet"}
_AT_ONCE = 4


class UnknownRule(ValueError):
    """There is no rule of that name."""


class Table(Protocol):
    """A dialect's rules. `examine` gives what they are given: it is left when all have judged, and then nothing may be running."""

    RULES: tuple[Rule, ...]

    def examine(self, task: Task) -> AbstractContextManager[Any]: ...


def rules(dialect: str = "zot") -> tuple[Rule, ...]:
    """The rules of a dialect, in their order."""
    return _load_table(dialect).RULES


def _load_table(dialect: str) -> Table:
    return cast(Table, import_module(TABLES[dialect]))


def environment(*, grants: Iterable[str] = ()) -> dict[str, str]:
    """Ours as a host hands it on: without what looks like a credential, except these."""
    return build_guest_env(copy_environ(), grants=grants)


def check(
    path: Path | str,
    *,
    calls: Mapping[str, object] | Iterable[tuple[str, object]] = (),
    commands: Iterable[str] = (),
    only: Iterable[str] = (),
    patience: Patience | None = None,
    environ: Mapping[str, str] | None = None,
) -> Report:
    """Check the guest at a path against the rules of its dialect, or `only` against some of them.

    A tool is called with arguments that fit it, and a command run, only if they are given: `calls` as in
    `{"weather": {"city": "Bern"}}`, `commands` as in `["pick Bern"]`. Each is then done dozens of times, some of them at once and
    some cut short: give only what does no harm. `environ` is the environment of the guest, as it is; by default that of
    `environment()`, with this Python as its `python3`.
    """
    target = ProbeTarget.from_path(path, with_python(environment()) if environ is None else environ)
    table = _load_table(target.dialect)
    chosen = _choose_rules(table.RULES, list(only))
    task = Task(
        target=target,
        patience=patience or Patience(),
        calls=list(calls.items() if isinstance(calls, Mapping) else calls),
        commands=list(commands),
    )
    told = all(rule in chosen for rule in table.RULES if rule.opening)
    found: dict[str, list[Finding]] = {}
    with table.examine(task) as examination, ThreadPoolExecutor(1 if target.exclusive else _AT_ONCE, "check") as pool:
        try:
            for last in (False, True):  # those that look at everything come when there is everything
                turn = sorted((rule for rule in chosen if rule.last is last), key=lambda rule: not rule.long)
                results = pool.map(lambda rule: apply_rule(rule, examination, told=told), turn)
                found |= zip([rule.name for rule in turn], results, strict=True)
        except BaseException:
            examination.abandon()  # Ctrl-C: nobody waits for what a guest may never do
            raise
    return Report(target.name, target.dialect, [finding for rule in chosen for finding in found[rule.name]])


def _choose_rules(table: Sequence[Rule], only: Sequence[str]) -> list[Rule]:
    if unknown := [name for name in only if name not in RULES]:  # another dialect's is none of this guest's, and no mistake
        raise UnknownRule(f"there is no rule {', '.join(unknown)}; there are: {', '.join(RULES)}")
    return [rule for rule in table if not only or rule.name in only]


def apply_rule(rule: Rule, examination: object, *, told: bool) -> list[Finding]:
    """What a rule found, or that it found nothing wrong. `told` is whether others say why a guest does not open."""
    try:
        findings = list(rule.judge(examination))
    except Unopened as unopened:
        findings = [Finding(status="skipped", why=str(unopened)) if told else unopened.problem]
    except Skip as skip:
        findings = [Finding(status="skipped", why=str(skip))]
    except RuleFailed as failed:
        findings = [failed.finding]
    findings = findings or [Finding(status="passed", why=rule.text)]
    return [replace(finding, rule=rule.name, requirements=rule.requirements) for finding in findings]


def assert_conforms(path: Path | str, rule: str | None = None, **options: Any) -> Report:
    """For pytest: an `AssertionError` with all that is wrong, when something is. Takes the options of `check`.

    @pytest.mark.parametrize("rule", conformance.RULES)
    def test_it_conforms(rule): conformance.assert_conforms("my-extension", rule)
    """
    report = check(path, only=[rule] if rule else (), **options)
    if not report.ok:
        raise AssertionError(str(report))
    return report


def _iter_names() -> Iterator[str]:
    for dialect in TABLES:
        yield from (rule.name for rule in rules(dialect))


RULES: tuple[str, ...] = tuple(dict.fromkeys(_iter_names()))
