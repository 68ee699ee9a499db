"""What a docstring says of a tool and of its parameters, in the styles in use: Google's, numpy's and Sphinx's.

The description is for the model: the section on parameters becomes their descriptions, what is returned or raised is left out, and
lines that were broken to fit a page are joined.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Docstring", "docstring"]


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


def docstring(text: str | None) -> Docstring:
    """Read a docstring."""
    text = (text or "").strip("\n")
    if "\n" not in text and not text.lstrip().startswith(":"):
        return Docstring(text.strip(), {})
    description: list[str] = []
    parameters: dict[str, str] = {}
    lines = _dedented(text.expandtabs().splitlines())
    while lines:
        taken = _numpy(lines, parameters) or _google(lines, parameters) or _sphinx(lines, parameters)
        if not taken:
            description.append(lines[0])
        lines = lines[taken or 1 :]
    return Docstring(_joined(description), parameters)


# Each style looks whether the lines begin with a section that is not for the description. If so it notes the parameters there and
# tells how many lines it has taken.


def _numpy(lines: list[str], parameters: dict[str, str]) -> int:
    title = lines[0].strip().lower()
    if title not in _PARAMETERS | _LEFT_OUT or not _is_underlined(lines, 0):
        return 0
    end = next((index for index in range(2, len(lines)) if _is_underlined(lines, index)), len(lines))
    if title in _PARAMETERS:
        names: list[str] = []
        for line in lines[2:end]:
            if line.startswith(" ") and names:
                _note(parameters, names, line)
            elif entry := re.fullmatch(_NUMPY_ENTRY, line):
                names = [name.strip(" *") for name in entry[1].split(",")]
    return end


def _google(lines: list[str], parameters: dict[str, str]) -> int:
    title = lines[0].rstrip().removesuffix(":").lower()
    if title not in _PARAMETERS | _LEFT_OUT or not lines[0].rstrip().endswith(":"):
        return 0
    end = next((index for index in range(1, len(lines)) if lines[index][:1].strip()), len(lines))  # the next that is not indented
    body = _dedented(["", *lines[1:end]])
    if not body:
        return 0
    if title in _PARAMETERS:
        names: list[str] = []
        for line in body:
            if entry := re.fullmatch(_GOOGLE_ENTRY, line):
                names = [entry[1]]
                _note(parameters, names, entry[2] or "")
            else:
                _note(parameters, names, line)
    return end


def _sphinx(lines: list[str], parameters: dict[str, str]) -> int:
    field = re.fullmatch(_SPHINX_FIELD, lines[0])
    if field is None or field[1] not in _SPHINX_PARAMETERS | _SPHINX_LEFT_OUT:
        return 0
    end = next((index for index in range(1, len(lines)) if not lines[index].startswith(" ")), len(lines))
    if field[1] in _SPHINX_PARAMETERS and field[2]:
        for line in [field[3] or "", *lines[1:end]]:
            _note(parameters, [field[2].split()[-1].strip("*")], line)  # before the name there may be its type
    return end


def _is_underlined(lines: list[str], index: int) -> bool:
    return index + 1 < len(lines) and bool(lines[index].strip()) and re.fullmatch(_UNDERLINE, lines[index + 1].strip()) is not None


def _note(parameters: dict[str, str], names: list[str], line: str) -> None:
    for name in names:
        parameters[name] = f"{parameters.get(name, '')} {line.strip()}".strip()


def _dedented(lines: list[str]) -> list[str]:
    """Without the indentation that all lines but the first have, and without empty lines around them."""
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    lines = [lines[0].strip(), *(line[margin:].rstrip() for line in lines[1:])] if lines else []
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def _joined(lines: list[str]) -> str:
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
