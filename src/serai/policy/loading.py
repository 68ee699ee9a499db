"""Which rules are in force: the command line's, the files named there, the project's, the person's, and what is shipped.

A project that is not trusted may only narrow (design rule 12): its rules that deny or ask count, those that allow do not. A mode
other than `manual` is never a project's to choose: `auto` and `skip` are a person's own choice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from serai import paths
from serai.errors import BadSettings
from serai.policy.rules import MODES, Rules, default, read_bytes, read_file, read_flag, read_toml

__all__ = ["USER_FILE", "load"]

USER_FILE = "policy.toml"


def load(
    project: str,
    *,
    files: Iterable[str] = (),
    allow: Iterable[str] = (),
    mode: str = "",
    untrusted: str | Callable[[bytes], str] = "they are not trusted",
    environ: Mapping[str, str] = os.environ,
) -> Rules:
    """All of them, in that order. `untrusted` says why the project's rules may not allow anything; empty: they may.

    As a function it is given what is in their file: what is checked is then what is read, whoever writes there meanwhile.
    """
    if mode and mode not in MODES:
        raise BadSettings(f"a mode is {', '.join(MODES)}, not {mode!r}", hint="choose one of them")
    found = Rules(rules=tuple(read_flag(flag) for flag in allow), mode=mode)
    for file in files:
        found += read_file(file)
    found += _narrowed(os.path.join(project, paths.PROJECT_POLICY), untrusted)
    own = os.path.join(paths.config_folder(environ), USER_FILE)
    if (content := _if_there(own)) is not None:
        found += read_toml(content, own)
    return found + default()


def _narrowed(path: str, untrusted: str | Callable[[bytes], str]) -> Rules:
    content = _if_there(path)
    if content is None:
        return Rules()
    rules = read_toml(content, path)
    notes = []
    taken = rules.rules
    why = untrusted if isinstance(untrusted, str) else untrusted(content)
    if why and (left := rules.by("allow")):
        taken = tuple(rule for rule in taken if rule.decide != "allow")
        notes.append(f"{path}: {len(left)} of its rules allow something and do not count: {why}")
    loose = {rules.mode, *rules.profiles.values()} - {"", "manual"}
    if loose:
        notes.append(f"{path}: the mode `{min(loose)}` does not count: a project cannot choose it, say it in your own {USER_FILE}")
    return replace(rules, rules=taken, mode="", profiles={}, notes=tuple(notes))


def _if_there(path: str) -> bytes | None:
    try:
        os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:  # a rule file that cannot be looked at must not be taken for one that is not there
        raise BadSettings(f"cannot be read: {error.strerror}", who=path) from None
    return read_bytes(path)
