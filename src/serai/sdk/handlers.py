"""An author's function: how it is called, and where it stands. What is wrong with one is said when it is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from serai.errors import BadExtension

__all__ = ["Function", "Handler", "Tool", "place"]

Function = Callable[..., Any]

_COROUTINE = 0x80  # CO_COROUTINE, without the import of inspect
_VARARGS = 0x04


class Handler:
    """A function that is called with at most so many arguments, and gets as many of them as it takes."""

    __slots__ = ("count", "function", "is_async", "where")

    def __init__(self, function: Function, what: str, *offered: str) -> None:
        if not callable(function):
            raise BadExtension(f"{what}: {function!r} is no function", hint="put the decorator above a function")
        least, most = _positional(function, what)
        if least > len(offered):
            given = f"({', '.join(offered)})" if offered else "nothing"
            text = f"{what}: its handler in {place(function)} needs {least} arguments and is given {given}"
            raise BadExtension(text, hint=f"write it as `def {_name(function)}({', '.join(offered)})`, or with fewer")
        self.function = function
        self.count = min(most, len(offered))
        self.is_async = is_async(function)
        self.where = place(function)

    def given(self, *offered: Any) -> tuple[Any, ...]:
        return offered[: self.count]


class Tool:
    """A tool and what serves it. `bind` makes keyword arguments of what a model sent, or is None: then it gets that as it is."""

    __slots__ = ("bind", "call", "description", "extras", "function", "given", "is_async", "name", "schema", "timeout", "where")

    def __init__(
        self, function: Function, name: str, description: str, schema: dict[str, Any] | None, timeout: float | None
    ) -> None:
        self.function, self.name, self.timeout = function, name, timeout
        self.is_async, self.where = is_async(function), place(function)
        self.extras: dict[str, Any] = {}  # what only some dialects can tell of it
        self.call = ""  # the parameter that wants the running call
        self.bind: Callable[[object], dict[str, Any]] | None = None
        self.given: Callable[..., tuple[Any, ...]] = lambda *offered: offered
        if schema is None:
            from serai.sdk.schema.parameters import parameters

            derived = parameters(function, name)
            self.schema, self.bind, self.call = derived.schema, derived.bind, derived.call
            self.description = description or derived.description
        else:
            self.given = Handler(function, f'tool "{name}" with a schema of its own', "args").given
            self.schema = schema
            self.description = description or (getattr(function, "__doc__", None) or "").strip()


def is_async(function: Function) -> bool:
    """A function in disguise may still return something to wait for: that is looked at when it has."""
    code = getattr(_plain(function), "__code__", None)
    return code is not None and bool(code.co_flags & _COROUTINE)


def place(function: Function) -> str:
    code = getattr(_plain(function), "__code__", None)
    if code is None:
        return repr(function)
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"


def _plain(function: Any) -> Any:
    """The function inside a partial, a method or an object that can be called."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    function = getattr(function, "__func__", function)
    return function if hasattr(function, "__code__") else getattr(type(function), "__call__", function)  # noqa: B004


def _name(function: Function) -> str:
    name = getattr(function, "__name__", "handler")
    return str(name) if str(name).isidentifier() else "handler"


def _positional(function: Function, what: str) -> tuple[int, int]:
    """How many positional arguments it needs, and how many it can take."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__"):
        return _positional_in_disguise(function, what)
    if code.co_kwonlyargcount > len(function.__kwdefaults__ or {}):
        raise BadExtension(f"{what}: its handler in {place(function)} has keyword-only parameters", hint="give them defaults")
    most = code.co_argcount - hasattr(function, "__func__")  # a method has its object already
    least = most - len(function.__defaults__ or ())
    return least, 99 if code.co_flags & _VARARGS else most


def _positional_in_disguise(function: Function, what: str) -> tuple[int, int]:
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise BadExtension(f"{what}: how {function!r} is called cannot be told ({error})", hint="wrap it in a function") from None
    by_place = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    least = sum(one.default is one.empty for one in by_place)
    return least, 99 if any(one.kind is one.VAR_POSITIONAL for one in parameters) else len(by_place)
