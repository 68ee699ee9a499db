"""Whether a hook of boxes keeps to its protocol: for authors in any language, as `serai hook check PATH` and for pytest.

    from serai.testing.conformance import hook

    @pytest.mark.parametrize("rule", hook.RULES)
    def test_it_conforms(rule):
        hook.assert_conforms(Path("hooks/token.sh"), rule)

A check really runs the hook, for a dozen boxes, one for each way in which it may be told of them. Every state that it answers with
is given back to it, so what it makes it also takes away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from serai.limits import Limits
from serai.testing.conformance.checker import UnknownRule, apply_rule
from serai.testing.conformance.findings import Finding, Report, Rule
from serai.testing.conformance.hook import rules as by
from serai.testing.conformance.hook.examination import Patience, examine
from serai.testing.guest_process import copy_environ, with_python

__all__ = ["RULES", "Patience", "UnknownRule", "assert_conforms", "check", "environment", "rules"]

TABLE = (
    Rule("start", "it can be started", by.opening("start"), ("hooks.rule.1.11-lookup", "hooks.naive.09"), opening=True),
    Rule("answer", "it answers box.create with exit status 0", by.opening("answer"), ("hooks.rule.1.1-exit-status",), opening=True),
    Rule(
        "stdout",
        "its stdout has one JSON object and nothing else",
        by.opening("stdout"),
        ("hooks.decode.04", "hooks.decode.05", "hooks.decode.06"),
        opening=True,
    ),
    Rule(
        "members",
        "what it answers has the types of the protocol",
        by.opening("members"),
        ("hooks.decode.10", "hooks.mode.05", "hooks.owner.02"),
        opening=True,
    ),
    Rule("newline", "it does not wait for a newline", by.newline, ("hooks.rule.1.1-one-request",)),
    Rule("any-json", "it reads the request however that is written", by.any_json, ("hooks.rule.1.3-request",)),
    Rule("any-text", "any text in the request does it no harm", by.any_text, ("hooks.rule.1.3-request",)),
    Rule("large", "a large request does it no harm", by.large, ("hooks.naive.06",)),
    Rule("optional", "it does without what a request may leave out", by.optional, ("hooks.rule.1.3-box-on-create",)),
    Rule("cwd", "it answers wherever it is started", by.cwd, ("hooks.rule.1.11-descriptors",)),
    Rule("unknown-event", "an event that it does not know is nothing to do", by.unknown_event, ("hooks.rule.1.3-request",)),
    Rule("own-state", "each box has a state of its own", by.own_state, ("hooks.rule.2.3-name-key",)),
    Rule(
        "paths",
        "its files can be put where they belong, each once",
        by.files(by.path),
        ("hooks.path.01", "hooks.path.02", "hooks.path.04", "hooks.path.05", "hooks.path.10", "hooks.path.13"),
        last=True,
    ),
    Rule("modes", "its files have good modes", by.files(by.mode), ("hooks.mode.02", "hooks.mode.04", "hooks.mode.08"), last=True),
    Rule("owners", "its files have good owners", by.files(by.owner), ("hooks.owner.04", "hooks.owner.05"), last=True),
    Rule(
        "contents",
        "its files have one content each, and base64 is base64",
        by.files(by.content),
        ("hooks.bytes.01", "hooks.bytes.04", "hooks.bytes.08"),
        last=True,
    ),
    Rule(
        "sizes",
        "its state and its files are not too large",
        by.sizes,
        ("hooks.rule.1.12-state-size", "hooks.rule.1.12-inject-files"),
        last=True,
    ),
    Rule("names", "members are spelt as the protocol has them", by.names, ("hooks.decode.07", "hooks.decode.09"), last=True),
    Rule("destroy", "it takes its state back at box.destroy", by.destroy, ("hooks.rule.1.4-destroy-response",), last=True),
    Rule("destroy-again", "the same box.destroy again does no harm", by.destroy_again, ("hooks.rule.2.3-hooks-done",), last=True),
    Rule("secrets", "nothing of its answers is on stderr", by.secret, ("hooks.rule.1.10-failure-text",), last=True),
    Rule("left-behind", "no process is left when it has ended", by.left_behind, ("hooks.naive.07",), last=True),
    Rule("in-time", "nobody has to wait for it", by.in_time, ("hooks.rule.1.12-timeout",), last=True),
)
RULES: tuple[str, ...] = tuple(rule.name for rule in TABLE)


def rules() -> tuple[Rule, ...]:
    """The rules, in their order."""
    return TABLE


def environment() -> dict[str, str]:
    """Ours, all of it: that is how hooks are configured (spec hooks 1.11)."""
    return copy_environ()


def check(
    path: Path | str,
    *,
    only: Iterable[str] = (),
    patience: Patience | None = None,
    environ: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Check the hook at a path against the rules, or `only` against some of them. It is really run.

    A text without a slash is looked up in the PATH, as boxes do it. `environ` is the environment of the hook, as it is; by default
    ours, with this Python as its `python3`. `limits` are those of the boxes, `patience` is by default that of these limits. `tell`
    is told what is being waited for when that takes.
    """
    chosen = list(only)
    if unknown := [name for name in chosen if name not in RULES]:
        raise UnknownRule(f"there is no rule {', '.join(unknown)}; there are: {', '.join(RULES)}")
    table = [rule for rule in TABLE if not chosen or rule.name in chosen]
    program = os.path.abspath(path) if isinstance(path, Path) or "/" in path else path
    told = all(rule in table for rule in TABLE if rule.opening)
    found: dict[str, list[Finding]] = {}
    environ = with_python(environment()) if environ is None else environ
    limits = limits or Limits()
    patience = patience or Patience(run=limits.hook_timeout, terminate=limits.hook_grace)
    with examine(program, environ, patience, limits, tell) as examination:
        for rule in sorted(table, key=lambda rule: rule.last):  # those that look at everything come when there is everything
            found[rule.name] = apply_rule(rule, examination, told=told)
    return Report(os.path.basename(program), "hookproto", [finding for rule in table for finding in found[rule.name]])


def assert_conforms(
    path: Path | str, rule: str | None = None, *, patience: Patience | None = None, environ: Mapping[str, str] | None = None
) -> Report:
    """For pytest: an `AssertionError` with all that is wrong, when something is."""
    report = check(path, only=[rule] if rule else (), patience=patience, environ=environ)
    if not report.ok:
        raise AssertionError(str(report))
    return report
