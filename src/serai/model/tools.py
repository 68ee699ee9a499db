"""A tool, a call of it, and its result.

Arguments, schemas and details are plain JSON data (dict, list, str, …) that nobody changes: a rewrite makes new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

# Names that mean the same wherever they are called (docs/design-rules.md, "The path of a call"), and zot's `skill`. No guest gets
# one of them unless it is granted, whether or not the built-in of that name is switched on (spec zot 7.49).
BUILT_IN = frozenset({"bash", "edit", "fetch", "find", "grep", "read", "skill", "write"})


class TextBlock(msgspec.Struct, frozen=True, tag="text", gc=False):
    text: str


class ImageBlock(msgspec.Struct, frozen=True, tag="image", gc=False):
    """An image; its bytes are base64 in JSON."""

    data: bytes
    mime: str = ""


class OtherBlock(msgspec.Struct, frozen=True, tag="other"):
    """Content that none of the words fits: kept as it came (design rule 4)."""

    kind: str
    native: Any = None


Block = TextBlock | ImageBlock | OtherBlock


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model is told of a tool, and how the tool wants to be treated."""

    name: str
    description: str = ""
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    hint: str = ""  # one line for the system prompt's notes on tools
    deferred: bool = False  # offered by name only until it is asked for
    interrupt: Literal["cancel", "block"] = "cancel"  # "block": what has begun is let finish
    background: bool = False  # may run for a background agent; never a guest's (spec piglet 6.7)


class NativeCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A driven agent's own name and arguments for what a call says in neutral words."""

    name: str
    arguments: Any = None


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Somebody wants a tool run. `id` is the model's own for it; `asker` says who wants it (`person`, `claude`, `zot:weather`).

    `arguments` are an object; a text when a model's own were no JSON.
    """

    name: str
    arguments: Any = msgspec.field(default_factory=dict)
    id: str = ""
    asker: str = ""
    native: NativeCall | None = None


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What came of a call.

    `code` says in upper case what went wrong, such as `TOOL_UNAVAILABLE`; `hint` what the model could do about it; `details` are
    for people and interceptors, never for the model.
    """

    content: tuple[Block, ...] = ()
    is_error: bool = False
    code: str = ""
    hint: str = ""
    details: Any = None

    @classmethod
    def of(cls, text: str) -> ToolResult:
        return cls((TextBlock(text),))

    @classmethod
    def error(cls, text: str, *, code: str = "", hint: str = "") -> ToolResult:
        return cls((TextBlock(text),), is_error=True, code=code, hint=hint)

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))


ProgressCallback = Callable[[str], None]  # takes a piece of what a tool says while it runs


class ToolBox(Protocol):
    """Tools to choose from, and to call. The host is one; an agent is handed one."""

    def list(self) -> Sequence[ToolSpec]: ...

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        """Never raises for what a tool does wrong: that is an error result. `tell` is for people who watch it work."""
        ...
