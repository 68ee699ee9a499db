"""Makes the folder of a stand-in guest: its manifest, its program and its behaviour."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.support.piglet_guests.steps import Step

# What a handler answers: a text says what its kind makes of a text, a list are steps, and all else is the result as it is.
Answer = str | list[Step] | Mapping[str, Any] | int | bool | None
Offered = Mapping[str, "Answer | Offer"]
Sdk = Literal["go", "typescript"]

_OWN: Any = object()  # what a guest does when it is not told
_SOURCE = Path(__file__).parents[3]  # where the package tests lies
_KEYS = {"sections": "title", "shortcuts": "key", "providers": "api"}
_TYPESCRIPT = {"tools", "commands", "sections"}  # spec piglet 8.1
_PROGRAM = """#!{python} -SE
import sys

sys.path.insert(0, {source!r})
from tests.support.piglet_guests.programs.{module} import main

main(__file__)
"""


@dataclass(frozen=True, slots=True)
class Offer:
    """A contribution with more than a name: what is registered, and what its handlers answer."""

    answers: Mapping[str, Answer]
    params: Mapping[str, object] = field(default_factory=dict)


def offer(answer: Answer = None, **params: object) -> Offer:
    """A contribution with further fields of its registration: `offer("done", deferred=True, parameters={…})`."""
    return Offer({"answer": answer}, params)


def interceptor(*, before: Answer = _OWN, after: Answer = _OWN, priority: int = 0) -> Offer:
    """An interceptor. As it is it allows everything and changes nothing; `before="no"` blocks with that preview."""
    answers: dict[str, Answer] = {"before": [] if before is _OWN else before, "after": [] if after is _OWN else after}
    return Offer(answers, {"priority": priority})


def write(
    place: Path | str,
    name: str,
    *,
    sdk: Sdk = "go",
    version: str = "1.0",
    tools: Offered | Iterable[str] = (),
    commands: Offered | Iterable[str] = (),
    sections: Offered = {},  # noqa: B006 - never changed
    interceptors: Offered | Iterable[str] = (),
    handlers: Offered | Iterable[str] = (),
    shortcuts: Offered | Iterable[str] = (),
    hooks: Offered | Iterable[str] = (),
    transformers: Offered | Iterable[str] = (),
    compactor: Answer | Offer = _OWN,
    providers: Offered | Iterable[str] = (),
    late: Iterable[str] = (),
    at_start: list[Step] | None = None,
    at_init: list[Step] | None = None,
    initialize: Answer = _OWN,
    after_init: list[Step] | None = None,
    stdio: bool = False,
    journal: Path | str = "",
    runtime: str = "",
    entry: str = "",
    manifest: Mapping[str, object] | None = None,
) -> Path:
    """Make the folder `place/name` with a guest in it, and return it. Written again, it is changed in place.

    Contributions are given by name with what they answer; a bare list of names answers nothing in particular. `late` are names
    that are registered after the answer to initialize. Steps that belong to no request: `at_start` before it reads anything,
    `at_init` before its registrations, `after_init` once it has answered. `initialize` replaces that answer, if need be by steps:
    `[throw("no")]`, `[wait()]`. `stdio` makes a Go-like guest speak on stdin and stdout although it could use FD 3 and 4.
    `journal` is a file that gets every message it reads and writes, a line each: `{"in": …}` or `{"out": …}`. `manifest` adds
    keys to manifest.yaml, or takes the place of what is there.
    """
    offered = {
        "tools": tools,
        "commands": commands,
        "sections": sections,
        "interceptors": interceptors,
        "handlers": handlers,
        "shortcuts": shortcuts,
        "hooks": hooks,
        "transformers": transformers,
        "compactor": {} if compactor is _OWN else {"compactor": compactor},
        "providers": providers,
    }
    if sdk == "typescript" and (strange := sorted(kind for kind, given in offered.items() if given and kind not in _TYPESCRIPT)):
        raise ValueError(f"the TypeScript SDK has no {', '.join(strange)}; it has: {', '.join(sorted(_TYPESCRIPT))}")
    told = {
        "name": name,
        "version": version,
        "offers": {kind: _offers(kind, given) for kind, given in offered.items() if given},
        "late": list(late),
        "at_start": at_start or [],
        "at_init": at_init or [],
        "initialize": None if initialize is _OWN else {"answer": initialize},
        "after_init": after_init or [],
        "stdio": stdio,
        "journal": os.fspath(journal),
    }
    folder = Path(place) / name
    folder.mkdir(parents=True, exist_ok=True)
    _put(folder / "behaviour.json", json.dumps(told, indent=1))
    program = folder / (entry or "guest")
    program.parent.mkdir(parents=True, exist_ok=True)
    module = {"go": "go_sdk", "typescript": "ts_sdk"}[sdk]
    _put(program, _PROGRAM.format(python=sys.executable, source=str(_SOURCE), module=module), mode=0o755)
    described = {"name": name, "version": version, "runtime": runtime or "./guest", **({"entry": entry} if entry else {})}
    _put(folder / "manifest.yaml", _yaml(described | dict(manifest or {})))
    return folder


def _offers(kind: str, given: Offered | Iterable[str]) -> list[dict[str, object]]:
    key = _KEYS.get(kind, "name")
    offers: list[dict[str, object]] = []
    for name, answer in (given if isinstance(given, Mapping) else dict.fromkeys(given, _NOTHING)).items():
        full = answer if isinstance(answer, Offer) else _offer(kind, answer)
        offers.append({"params": {key: name, **_defaults(kind, name), **full.params}, **full.answers})
    return offers


_NOTHING: list[Step] = []


def _offer(kind: str, answer: Answer) -> Offer:
    if kind == "sections":
        return Offer({}, {"content": answer or ""})
    return interceptor(before=answer) if kind == "interceptors" else Offer({"answer": answer})


def _defaults(kind: str, name: str) -> dict[str, object]:
    match kind:
        case "tools":
            return {"description": f"the tool {name}", "parameters": {"type": "object", "properties": {}}}
        case "commands" | "shortcuts":
            return {"description": f"the {kind.removesuffix('s')} {name}"}
        case "compactor":
            return {"threshold": 0}
    return {}


def _yaml(values: Mapping[str, object]) -> str:
    """JSON is YAML."""
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items() if value is not None)


def _put(path: Path, text: str, mode: int = 0o644) -> None:
    """Into place at once: a host that watches sees the old or the new, never a half."""
    part = path.with_name(f"{path.name}~")
    part.write_text(text)
    part.chmod(mode)
    part.rename(path)
