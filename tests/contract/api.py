"""The public Python names with their signatures, as lines of text.

A signature has the names, kinds and defaults of the parameters. An annotation is printed when all its names are builtins,
names of the standard library or public names of Serai; otherwise a `*` stands for it, so that internal classes may be renamed.
"""

from __future__ import annotations

import builtins
import collections.abc
import enum
import functools
import importlib
import inspect
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

__all__ = ["MODULES", "list_lines"]

MODULES = (
    "serai",
    "serai.sdk",
    "serai.testing.claude",
    "serai.testing.conformance",
    "serai.testing.conformance.hook",
    "serai.testing.faults",
    "serai.testing.models",
    "serai.testing.piglet_host",
    "serai.testing.yoi_host",
    "serai.testing.zot_host",
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_FORWARD = re.compile(r"ForwardRef\('(.*?)'\)")
_STRING = re.compile(r"'[^']*'|\"[^\"]*\"")
_PLAIN = (bool, int, float, str, bytes, type(None))
# Special methods that are part of how an object is used.
_SPECIAL = ("__aenter__", "__aexit__", "__aiter__", "__await__", "__call__", "__enter__", "__exit__", "__iter__", "__len__")


def list_lines() -> list[str]:
    """One line per public name and per public member of a class."""
    return [line for module in MODULES for line in _module(module)]


def _module(module: str) -> Iterator[str]:
    found = importlib.import_module(module)
    yield f"module {module}"
    for name in sorted(found.__all__):
        value = getattr(found, name)
        if inspect.isclass(value):
            yield f"{module}.{name}{_class(value, module)}"
            yield from (f"{module}.{name}{line}" for line in sorted(_members(value, module)))
        elif inspect.isroutine(value):
            yield f"{module}.{name}{_function(value, module)}"
        else:
            yield f"{module}.{name}: {_constant(value)}"


def _class(owner: type, module: str) -> str:
    bases = [base.__name__ for base in owner.__mro__[1:] if base in _find_public(module) or base.__module__ == "builtins"]
    told = f" is {', '.join(bases)}" if bases != ["object"] else ""
    if issubclass(owner, enum.Enum):
        return f" = {', '.join(f'{member.name}={member.value!r}' for member in owner)}{told}"
    try:
        return f"{_signature(owner, module)}{told}"
    except (TypeError, ValueError):  # a protocol or a class of C code
        return told or " (class)"


def _members(owner: type, module: str) -> Iterator[str]:
    """Public members that classes of Serai define, inherited ones included, without the fields that the constructor takes."""
    seen = _parameters(owner)
    for base in owner.__mro__:
        if not base.__module__.startswith("serai"):
            continue
        annotations = vars(base).get("__annotations__", {})
        for name in [*vars(base), *annotations]:
            if name in seen or (name.startswith("_") and name not in _SPECIAL):
                continue
            seen.add(name)
            if name in annotations:
                yield f".{name}: {_annotation(annotations[name], module)}"
            else:
                yield f".{name}{_member(vars(base)[name], module)}"


def _parameters(owner: type) -> set[str]:
    if issubclass(owner, enum.Enum):
        return set(owner.__members__)
    try:
        return set(inspect.signature(owner).parameters)
    except (TypeError, ValueError):
        return set()


def _member(value: Any, module: str) -> str:
    if isinstance(value, property | functools.cached_property):
        function = value.fget if isinstance(value, property) else value.func
        return f" -> {_annotation(function.__annotations__.get('return', 'None'), module)} (property)"
    if isinstance(value, staticmethod | classmethod):
        return f"{_function(value.__func__, module)} ({type(value).__name__})"
    return _function(value, module) if inspect.isfunction(value) else " (attribute)"


def _function(function: Any, module: str) -> str:
    """The signature, with a word for coroutine functions and generators."""
    word = " (async)" if inspect.iscoroutinefunction(function) else ""
    word = word or (" (async generator)" if inspect.isasyncgenfunction(function) else "")
    return f"{_signature(function, module)}{word}"


def _signature(value: Any, module: str) -> str:
    signature = inspect.signature(value)
    empty = signature.empty
    parameters = []
    for parameter in signature.parameters.values():
        annotation = empty if parameter.annotation is empty else _Text(_annotation(parameter.annotation, module))
        default = empty if parameter.default is empty else _Text(_default(parameter.default))
        parameters.append(parameter.replace(annotation=annotation, default=default))
    returned = signature.return_annotation
    returned = empty if returned is empty else _Text(_annotation(returned, module))
    return str(signature.replace(parameters=parameters, return_annotation=returned))


class _Text:
    """A text that prints as it is in a signature."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _default(value: object) -> str:
    """The value as text where it is plain data."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if type(value) in _PLAIN or (type(value) in (tuple, list, frozenset) and all(type(item) in _PLAIN for item in value)):  # type: ignore[attr-defined]
        return repr(value)
    return "<function>" if inspect.isroutine(value) else "<object>"


def _annotation(annotation: object, module: str) -> str:
    """The annotation with last names only, or `*` when one of its names is not public."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = _FORWARD.sub(r"\1", text)
    text = _WORD.sub(lambda match: match[0].rpartition(".")[2], text)
    return text if all(word in _find_known(module) for word in _WORD.findall(_STRING.sub("", text))) else "*"


@functools.cache
def _find_public(module: str) -> frozenset[type]:
    """The public classes that a signature of this module may name: its own and those of `serai`."""
    modules = [importlib.import_module(name) for name in {module, "serai" if module != "serai.sdk" else module}]
    return frozenset(value for found in modules for name in found.__all__ if inspect.isclass(value := getattr(found, name)))


@functools.cache
def _find_known(module: str) -> frozenset[str]:
    names = {*dir(builtins), *typing.__all__, *collections.abc.__all__, *types.__all__, "Path", "PathLike"}
    return frozenset(names | {value.__name__ for value in _find_public(module)})


def _constant(value: object) -> str:
    """Names of what it holds, where these are what callers use."""
    if isinstance(value, str):
        return "str"
    if isinstance(value, dict):
        return f"dict of {', '.join(sorted(map(str, value)))}"
    if isinstance(value, tuple | list | frozenset | set) and all(isinstance(item, str) for item in value):
        return f"{type(value).__name__} of {', '.join(value)}"
    return "object"
