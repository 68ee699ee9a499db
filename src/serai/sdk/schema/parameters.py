"""What a tool's handler takes: the schema for the model from its signature, and keyword arguments from what the model sends.

Docstrings in the styles of Google, numpy and Sphinx describe a tool and its parameters. The description is for the model: the
section on parameters becomes their descriptions, what is returned or raised is left out, and lines that were broken to fit a page
are joined.

Plain functions and methods are inspected by hand. Functions that are wrapped or called in another way are left to `inspect`, whose
import an extension's start would otherwise wait for.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Callable
from enum import Enum
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

from serai.errors import BadExtension
from serai.sdk.answers import ToolError
from serai.sdk.current_call import Call
from serai.sdk.registrations import find_place
from serai.sdk.schema.hints import UNIONS, Hints, Scope, describe_default, evaluate
from serai.sdk.schema.validation import Underivable, Validation
from serai.sdk.schema.values import Field, Never, ObjectKind, ValueKind, make_nullable


class Docstring(NamedTuple):
    description: str
    parameters: dict[str, str]  # whatever it names, be there such a parameter or not


_PARAMETERS = {"args", "arguments", "parameters", "params", "other parameters", "keyword args", "keyword arguments"}
_LEFT_OUT = {"returns", "return", "raises", "yields", "yield", "warns"}

# Patterns are compiled when they are needed: most docstrings are one line, and an extension's start waits.
_UNDERLINE = r"-{3,}|={3,}"

_GOOGLE_ENTRY = r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*)|$)"
_NUMPY_ENTRY = r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?"
_SPHINX_FIELD = r":(\w+)(?:\s+([^:]+))?:(?:\s+(.*)|$)"
_SPHINX_PARAMETERS = {"param", "parameter", "arg", "argument", "key", "keyword"}
_SPHINX_LEFT_OUT = {"type", "return", "returns", "rtype", "raise", "raises", "except", "exception", "yield", "yields"}

_OWN_LINE = r"\s|>>>|\.\.\.|\||-{3,}|={3,}"  # indented, an example at the prompt, a table, an underline
_ITEM = r"([-*+•]|\d+[.)])\s"


def parse_docstring(text: str | None) -> Docstring:
    """Read a docstring."""
    text = (text or "").strip("\n")
    if "\n" not in text and not text.lstrip().startswith(":"):
        return Docstring(text.strip(), {})
    description: list[str] = []
    parameters: dict[str, str] = {}
    lines = _dedent(text.expandtabs().splitlines())
    while lines:
        taken = _parse_numpy(lines, parameters) or _parse_google(lines, parameters) or _parse_sphinx(lines, parameters)
        if not taken:
            description.append(lines[0])
        lines = lines[taken or 1 :]
    return Docstring(_join_lines(description), parameters)


# Each style looks whether the lines begin with a section that is not for the description. If so it notes the parameters there and
# tells how many lines it has taken.


def _parse_numpy(lines: list[str], parameters: dict[str, str]) -> int:
    title = lines[0].strip().lower()
    if title not in _PARAMETERS | _LEFT_OUT or not _is_underlined(lines, 0):
        return 0
    end = next((index for index in range(2, len(lines)) if _is_underlined(lines, index)), len(lines))
    if title in _PARAMETERS:
        names: list[str] = []
        for line in lines[2:end]:
            if line.startswith(" ") and names:
                _add_note(parameters, names, line)
            elif entry := re.fullmatch(_NUMPY_ENTRY, line):
                names = [name.strip(" *") for name in entry[1].split(",")]
    return end


def _parse_google(lines: list[str], parameters: dict[str, str]) -> int:
    title = lines[0].rstrip().removesuffix(":").lower()
    if title not in _PARAMETERS | _LEFT_OUT or not lines[0].rstrip().endswith(":"):
        return 0
    end = next((index for index in range(1, len(lines)) if lines[index][:1].strip()), len(lines))  # the next that is not indented
    body = _dedent(["", *lines[1:end]])
    if not body:
        return 0
    if title in _PARAMETERS:
        names: list[str] = []
        for line in body:
            if entry := re.fullmatch(_GOOGLE_ENTRY, line):
                names = [entry[1]]
                _add_note(parameters, names, entry[2] or "")
            else:
                _add_note(parameters, names, line)
    return end


def _parse_sphinx(lines: list[str], parameters: dict[str, str]) -> int:
    field = re.fullmatch(_SPHINX_FIELD, lines[0])
    if field is None or field[1] not in _SPHINX_PARAMETERS | _SPHINX_LEFT_OUT:
        return 0
    end = next((index for index in range(1, len(lines)) if not lines[index].startswith(" ")), len(lines))
    if field[1] in _SPHINX_PARAMETERS and field[2]:
        for line in [field[3] or "", *lines[1:end]]:
            _add_note(parameters, [field[2].split()[-1].strip("*")], line)  # before the name there may be its type
    return end


def _is_underlined(lines: list[str], index: int) -> bool:
    return index + 1 < len(lines) and bool(lines[index].strip()) and re.fullmatch(_UNDERLINE, lines[index + 1].strip()) is not None


def _add_note(parameters: dict[str, str], names: list[str], line: str) -> None:
    for name in names:
        parameters[name] = f"{parameters.get(name, '')} {line.strip()}".strip()


def _dedent(lines: list[str]) -> list[str]:
    """Without the indentation that all lines but the first have, and without empty lines around them."""
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    lines = [lines[0].strip(), *(line[margin:].rstrip() for line in lines[1:])] if lines else []
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def _join_lines(lines: list[str]) -> str:
    """Paragraphs as one line each; lists, code and tables as they are."""
    out: list[str] = []
    fenced = False
    joins = False  # whether the line before can go on
    for line in lines:
        fence = line.startswith("```")
        own = fenced or fence or re.match(_OWN_LINE, line) is not None
        if joins and line and not own and not re.match(_ITEM, line):
            out[-1] += f" {line}"
        elif line or fenced or (out and out[-1]):
            out.append(line)
        joins = bool(line) and not own
        fenced ^= fence
    return "\n".join(out).strip()


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


def read_signature(function: Any) -> list[Parameter]:
    """The parameters of a function; raises `TypeError`, `ValueError` or `NameError` when they cannot be told."""
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType) or {"__wrapped__", "__signature__"} & plain.__dict__.keys():
        return _read_by_inspect(function)
    found = _read_by_hand(plain)
    has_self = plain is not function and found and found[0].takes in (Takes.BY_PLACE, Takes.BY_NAME)
    return found[1:] if has_self else found


def _read_by_hand(function: FunctionType) -> list[Parameter]:
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


def _read_by_inspect(function: Any) -> list[Parameter]:
    import inspect

    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: Takes.BY_PLACE,
        inspect.Parameter.POSITIONAL_OR_KEYWORD: Takes.BY_NAME,
        inspect.Parameter.KEYWORD_ONLY: Takes.BY_NAME,
        inspect.Parameter.VAR_POSITIONAL: Takes.MORE,
        inspect.Parameter.VAR_KEYWORD: Takes.FURTHER,
    }

    def replace_empty(value: Any) -> Any:
        return ABSENT if value is inspect.Parameter.empty else value

    return [
        Parameter(one.name, kinds[one.kind], replace_empty(one.annotation), replace_empty(one.default))
        for one in inspect.signature(function).parameters.values()
    ]


def unwrap(function: Any) -> Any:
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


def find_bound(plain: Any, found: list[Parameter]) -> list[str]:
    """The parameters of an inner function that are given already, by place, such as a method's `self`: their names are taken."""
    if not isinstance(plain, FunctionType):
        return []
    code = plain.__code__
    known = {parameter.name for parameter in found}
    return [name for name in code.co_varnames[code.co_posonlyargcount : code.co_argcount] if name not in known]


def find_docstring(function: Any, plain: Any) -> str | None:
    """The docstring of a function whose inner one is given."""
    if isinstance(function, FunctionType | MethodType):
        return function.__doc__
    is_object = plain is getattr(type(function), "__call__", None)  # noqa: B004
    found = plain.__doc__ or (function.__doc__ if is_object else None)
    return found if isinstance(found, str) else None


def find_outer_names(function: Any) -> dict[str, Any]:
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


class Parameters:
    """What one tool's handler takes."""

    __slots__ = ("_record", "call", "description", "schema")

    def __init__(self, record: ObjectKind, description: str, call: str) -> None:
        defs: dict[str, Any] = {}
        self.schema: dict[str, Any] = record.build_schema(defs)
        if defs:
            self.schema["$defs"] = defs
        self.description = description
        self.call = call  # the name of the parameter that wants the running call
        self._record = record

    def bind(self, arguments: object) -> dict[str, Any]:
        """Keyword arguments for the handler; raises `ToolError` with all that is wrong, for the model to act on."""
        if arguments is None and "required" not in self.schema:
            return {}  # a model that has nothing to say
        reading = Validation()
        try:
            found: dict[str, Any] = self._record.read(arguments, "", reading)
        except (RecursionError, MemoryError):
            raise ToolError("invalid arguments: they are nested too deep") from None
        if wrong := reading.format_problems():
            raise ToolError(wrong)
        return found


def derive_parameters(function: Callable[..., object], name: str) -> Parameters:
    """Look at a tool's handler; raises `BadExtension` if no schema can be made of its signature."""
    plain = unwrap(function)
    scope = Scope(find_outer_names(plain), getattr(plain, "__globals__", {}))
    description, notes = parse_docstring(find_docstring(function, plain))
    hints = Hints()
    record = ObjectKind("arguments", dict)
    call = ""
    who = f'tool "{name}" ({find_place(plain if hasattr(plain, "__code__") else function)})'
    found = _check_signature(function, who)
    for parameter in found:
        try:
            if _wants_call(parameter, scope):
                call = _claim_call(call, parameter)
            else:
                _add_field(record, parameter, hints.derive_kind(_find_hint(parameter), scope), notes.get(parameter.name, ""))
        except Underivable as error:
            text = f'{who}: the parameter "{parameter.name}" {error.problem}'
            raise BadExtension(text, hint=error.hint) from None
    if record.rest is not None:
        for taken in [*find_bound(plain, found), *([call] if call else [])]:  # a further argument could take their place
            record.fields[taken] = Field(taken, Never(), required=False, notes={})
    return Parameters(record, description, call)


def _check_signature(function: Callable[..., object], who: str) -> list[Parameter]:
    try:
        return read_signature(function)
    except (TypeError, ValueError, NameError) as error:
        raise BadExtension(f"{who}: what it takes cannot be told: {error}", hint="wrap it in a function with type hints") from None


def _add_field(record: ObjectKind, parameter: Parameter, kind: ValueKind, description: str) -> None:
    if parameter.takes is Takes.FURTHER:
        record.rest = kind
        return
    if parameter.default is None:
        kind = make_nullable(kind)  # `city: str = None` means that it may be null
    notes = {"description": description} if description and "description" not in kind.keywords else {}
    required = parameter.default is ABSENT
    default = {} if required else describe_default(parameter.default)
    record.fields[parameter.name] = Field(parameter.name, kind, required, {**notes, **default})


def _find_hint(parameter: Parameter) -> Any:
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
    hint = evaluate(parameter.hint, scope)
    if typing.get_origin(hint) is typing.Annotated:
        hint = evaluate(typing.get_args(hint)[0], scope)
    return hint is Call or (typing.get_origin(hint) in UNIONS and Call in typing.get_args(hint))  # `Call | None`


def _claim_call(call: str, parameter: Parameter) -> str:
    if call:
        raise Underivable(f'wants the running call, and so does "{call}"', "leave one of them out")
    return parameter.name
