"""What a function takes, and what is known around it.

Plain functions and methods are looked at by hand. What is wrapped or called in another way is left to `inspect`, whose import an
extension's start would otherwise wait for.
"""

from __future__ import annotations

import sys
from enum import Enum  # imported with `re` anyway
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

__all__ = ["ABSENT", "Parameter", "Takes", "describing", "filled", "inner", "names_around", "signature"]

ABSENT: Any = object()  # no hint, or no default

_VARARGS, _VARKEYWORDS = 0x04, 0x08  # among a code's flags


class Takes(Enum):
    """How a parameter takes its value."""

    BY_PLACE = "positional-only"
    BY_NAME = "by name"
    MORE = "*"
    FURTHER = "**"


class Parameter(NamedTuple):
    name: str
    takes: Takes
    hint: Any
    default: Any


def signature(function: Any) -> list[Parameter]:
    """The parameters of a function; raises `TypeError`, `ValueError` or `NameError` when they cannot be told."""
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType) or {"__wrapped__", "__signature__"} & plain.__dict__.keys():
        return _by_inspect(function)
    found = _by_hand(plain)
    has_self = plain is not function and found and found[0].takes in (Takes.BY_PLACE, Takes.BY_NAME)
    return found[1:] if has_self else found


def _by_hand(function: FunctionType) -> list[Parameter]:
    code = function.__code__
    count = code.co_argcount
    takes = [Takes.BY_PLACE] * code.co_posonlyargcount
    takes += [Takes.BY_NAME] * (count - code.co_posonlyargcount + code.co_kwonlyargcount)
    takes += [Takes.MORE] if code.co_flags & _VARARGS else []
    takes += [Takes.FURTHER] if code.co_flags & _VARKEYWORDS else []
    names = code.co_varnames[: len(takes)]
    by_place = function.__defaults__ or ()
    defaults = {**dict(zip(names[count - len(by_place) : count], by_place, strict=True)), **(function.__kwdefaults__ or {})}
    hints = function.__annotations__
    return [
        Parameter(name, how, hints.get(name, ABSENT), defaults.get(name, ABSENT)) for name, how in zip(names, takes, strict=True)
    ]


def _by_inspect(function: Any) -> list[Parameter]:
    import inspect

    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: Takes.BY_PLACE,
        inspect.Parameter.POSITIONAL_OR_KEYWORD: Takes.BY_NAME,
        inspect.Parameter.KEYWORD_ONLY: Takes.BY_NAME,
        inspect.Parameter.VAR_POSITIONAL: Takes.MORE,
        inspect.Parameter.VAR_KEYWORD: Takes.FURTHER,
    }

    def or_absent(value: Any) -> Any:
        return ABSENT if value is inspect.Parameter.empty else value

    return [
        Parameter(one.name, kinds[one.kind], or_absent(one.annotation), or_absent(one.default))
        for one in inspect.signature(function).parameters.values()
    ]


def inner(function: Any) -> Any:
    """The function inside a method, a decorated one, a partial, or an object that can be called."""
    for _ in range(99):  # some wrap themselves
        if isinstance(function, MethodType):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif isinstance(function, FunctionType):
            break
        elif hasattr(function, "func"):
            function = function.func
        else:
            function = getattr(type(function), "__call__", function)  # noqa: B004  (its function, not whether it has one)
    return function


def filled(plain: Any, found: list[Parameter]) -> list[str]:
    """The parameters of an inner function that are given already, by place, such as a method's `self`: their names are taken."""
    if not isinstance(plain, FunctionType):
        return []
    code = plain.__code__
    known = {parameter.name for parameter in found}
    return [name for name in code.co_varnames[code.co_posonlyargcount : code.co_argcount] if name not in known]


def describing(function: Any, plain: Any) -> str | None:
    """The docstring of a function whose inner one is given."""
    if isinstance(function, FunctionType | MethodType):
        return function.__doc__
    is_object = plain is getattr(type(function), "__call__", None)  # noqa: B004
    found = plain.__doc__ or (function.__doc__ if is_object else None)
    return found if isinstance(found, str) else None


def names_around(function: Any) -> dict[str, Any]:
    """What a function that is made inside others sees there.

    Its closure has only what its body uses, and hints that are text use nothing: so the frames that are making it are asked too.
    """
    around: dict[str, Any] = {}
    if not isinstance(function, FunctionType):
        return around
    code: CodeType = function.__code__
    frame: FrameType | None = sys._getframe(1) if "<locals>" in function.__qualname__ else None
    while frame is not None:
        if code in frame.f_code.co_consts:
            around = {**frame.f_locals, **around}
            code = frame.f_code
        frame = frame.f_back
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            around[name] = cell.cell_contents
        except ValueError:  # not bound yet
            pass
    return around
