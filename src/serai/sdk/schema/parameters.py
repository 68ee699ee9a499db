"""What a tool's handler takes: the schema for the model from its signature, and keyword arguments from what the model sends."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from serai.errors import BadExtension
from serai.sdk.answers import ToolError
from serai.sdk.calls import Call
from serai.sdk.handlers import place
from serai.sdk.schema.docstrings import docstring
from serai.sdk.schema.hints import UNIONS, Hints, Scope, default_note, evaluated
from serai.sdk.schema.keywords import Underivable
from serai.sdk.schema.kinds import Kind, Never
from serai.sdk.schema.reading import Reading
from serai.sdk.schema.shapes import Field, Record, nullable
from serai.sdk.schema.signatures import ABSENT, Parameter, Takes, describing, filled, inner, names_around, signature

__all__ = ["Parameters", "parameters"]


class Parameters:
    """What one tool's handler takes."""

    __slots__ = ("_record", "call", "description", "schema")

    def __init__(self, record: Record, description: str, call: str) -> None:
        defs: dict[str, Any] = {}
        self.schema: dict[str, Any] = record.schema(defs)
        if defs:
            self.schema["$defs"] = defs
        self.description = description
        self.call = call  # the name of the parameter that wants the running call
        self._record = record

    def bind(self, arguments: object) -> dict[str, Any]:
        """Keyword arguments for the handler; raises `ToolError` with all that is wrong, for the model to act on."""
        if arguments is None and "required" not in self.schema:
            return {}  # a model that has nothing to say
        reading = Reading()
        try:
            found: dict[str, Any] = self._record.read(arguments, "", reading)
        except (RecursionError, MemoryError):
            raise ToolError("invalid arguments: they are nested too deep") from None
        if wrong := reading.text():
            raise ToolError(wrong)
        return found


def parameters(function: Callable[..., object], name: str) -> Parameters:
    """Look at a tool's handler; raises `BadExtension` if no schema can be made of its signature."""
    plain = inner(function)
    scope = Scope(names_around(plain), getattr(plain, "__globals__", {}))
    description, notes = docstring(describing(function, plain))
    hints = Hints()
    record = Record("arguments", dict)
    call = ""
    who = f'tool "{name}" ({place(plain if hasattr(plain, "__code__") else function)})'
    found = _signature(function, who)
    for parameter in found:
        try:
            if _wants_call(parameter, scope):
                call = _only(call, parameter)
            else:
                _add(record, parameter, hints.kind(_hint(parameter), scope), notes.get(parameter.name, ""))
        except Underivable as error:
            text = f'{who}: the parameter "{parameter.name}" {error.problem}'
            raise BadExtension(text, hint=error.hint) from None
    if record.rest is not None:
        for taken in [*filled(plain, found), *([call] if call else [])]:  # a further argument could take their place
            record.fields[taken] = Field(taken, Never(), required=False, notes={})
    return Parameters(record, description, call)


def _signature(function: Callable[..., object], who: str) -> list[Parameter]:
    try:
        return signature(function)
    except (TypeError, ValueError, NameError) as error:
        raise BadExtension(f"{who}: what it takes cannot be told: {error}", hint="wrap it in a function with type hints") from None


def _add(record: Record, parameter: Parameter, kind: Kind, description: str) -> None:
    if parameter.takes is Takes.FURTHER:
        record.rest = kind
        return
    if parameter.default is None:
        kind = nullable(kind)  # `city: str = None` means that it may be null
    notes = {"description": description} if description and "description" not in kind.keywords else {}
    required = parameter.default is ABSENT
    default = {} if required else default_note(parameter.default)
    record.fields[parameter.name] = Field(parameter.name, kind, required, {**notes, **default})


def _hint(parameter: Parameter) -> Any:
    """The hint of a parameter, or what its default tells."""
    if parameter.takes is Takes.BY_PLACE:
        raise Underivable("is positional-only, and a model gives arguments by name", "take the `/` out of the signature")
    if parameter.takes is Takes.MORE:
        instead = f"write `{parameter.name}: list[str]`; a decorator keeps the signature with functools.wraps"
        raise Underivable("takes any number of values by place, and a model gives arguments by name", instead)
    if parameter.hint is not ABSENT:
        return parameter.hint
    if parameter.takes is Takes.FURTHER:
        return Any
    if type(parameter.default) in (bool, int, float, str):
        return type(parameter.default)
    if parameter.name in ("self", "cls"):
        raise Underivable("has no type hint", "if it is a method, register the bound one, as in ext.tool(station.weather)")
    raise Underivable("has no type hint", f"write `{parameter.name}: str`, or whatever it is")


def _wants_call(parameter: Parameter, scope: Scope) -> bool:
    if parameter.hint is ABSENT or parameter.takes is not Takes.BY_NAME:
        return False
    hint = evaluated(parameter.hint, scope)
    if typing.get_origin(hint) is typing.Annotated:
        hint = evaluated(typing.get_args(hint)[0], scope)
    return hint is Call or (typing.get_origin(hint) in UNIONS and Call in typing.get_args(hint))  # `Call | None`


def _only(call: str, parameter: Parameter) -> str:
    if call:
        raise Underivable(f'wants the running call, and so does "{call}"', "leave one of them out")
    return parameter.name
