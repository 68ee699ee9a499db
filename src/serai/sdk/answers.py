"""What a handler can answer: actions of commands, events and shortcuts, verdicts of interceptors, the content of a tool's result.

Plain values of the standard library alone (a bundle has nothing else), made without `dataclasses`, whose import an extension's
start would wait for. Handlers of events and shortcuts answer with actions (spec piglet 5.4); `Display` and `Prompt`, the answers
of commands, are actions too; plain text is shown.
"""

from __future__ import annotations

from collections.abc import Iterable


class Value:
    """Equal to what has the same type and the same members."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._members() == other._members()

    def __hash__(self) -> int:
        return hash((type(self), *map(repr, self._members())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._members()))})"

    def _members(self) -> list[object]:
        return [getattr(self, name) for name in self.__slots__]


# -- answers to a command (spec zot 4.2) ----------------------------------------------------------------------------------------


class Prompt(Value):
    """Text for the agent, as if the person had typed it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Insert(Value):
    """Text for the person's input line, not submitted."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Display(Value):
    """Text to show to the person; no model sees it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class OpenPanel(Value):
    """A panel to open; `Panel.open` makes one."""

    __slots__ = ("id", "title", "lines", "footer")  # noqa: RUF023  (the order of the members)

    def __init__(self, id: str, title: str = "", lines: Iterable[str] = (), footer: str = "") -> None:
        self.id, self.title, self.lines, self.footer = id, title, tuple(lines), footer


class Nothing(Value):
    """All is done."""

    __slots__ = ()


class Failed(Value):
    """An error for the person to see. To raise any exception does the same."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


Answer = Prompt | Insert | Display | OpenPanel | Nothing | Failed


# -- verdicts of an interceptor (spec zot 4.4) ----------------------------------------------------------------------------------


class Allow(Value):
    """Go on, unchanged."""

    __slots__ = ()


class Block(Value):
    """Stop here; without a reason the host gives its own."""

    __slots__ = ("reason",)

    def __init__(self, reason: str = "") -> None:
        self.reason = reason


class Rewrite(Value):
    """Go on with this instead: all arguments of a tool call, or the text of a message."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


Verdict = Allow | Block | Rewrite


# -- a tool's result (spec zot 4.1) ---------------------------------------------------------------------------------------------


class Text(Value):
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Image(Value):
    """An image; without a type its first bytes tell."""

    __slots__ = ("data", "mime")

    def __init__(self, data: bytes, mime: str = "") -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"an image is made of bytes, not of {type(data).__name__}")
        if not isinstance(mime, str):
            raise TypeError(f"the type of an image is text, not {type(mime).__name__}")
        self.data = bytes(data)
        self.mime = mime or _mime(self.data)


Content = Text | Image


class ToolResult(Value):
    """What came of a call: texts and images, in order. An error may have a code and a hint for the model."""

    __slots__ = ("content", "is_error", "code", "hint")  # noqa: RUF023  (the order of the members)

    def __init__(self, *content: str | Content, is_error: bool = False, code: str = "", hint: str = "") -> None:
        self.content: tuple[Content, ...] = tuple(Text(one) if isinstance(one, str) else one for one in content)
        self.is_error = is_error
        self.code, self.hint = code, hint

    @classmethod
    def error(cls, text: str, *, code: str = "", hint: str = "") -> ToolResult:
        """With a code its text begins with it, in every dialect (spec piglet 5.1)."""
        return cls(Text(_coded(text, code, hint)), is_error=True, code=code, hint=hint)

    @property
    def text(self) -> str:
        """All its text."""
        return "\n".join(one.text for one in self.content if isinstance(one, Text))


class ToolError(Exception):
    """Raise it in a handler: the model, or the person, is told its text, and no trace is written.

    A `code` such as FILE_NOT_FOUND or INVALID_ARGS and a `hint` what to try help a model to do better.
    """

    def __init__(self, *args: object, code: str = "", hint: str = "") -> None:
        super().__init__(*args)
        self.code, self.hint = code, hint


def _coded(text: str, code: str, hint: str) -> str:
    if code and not text.startswith("[error:"):
        text = f"[error:{code}] {text}"
    return f"{text}\nhint: {hint}" if hint else text


def text(text: str) -> Text:
    """Text for a tool's result; a plain string does as well."""
    return Text(text)


def image(data: bytes, mime: str = "") -> Image:
    """An image for a tool's result, such as `image(Path("map.png").read_bytes())`."""
    return Image(data, mime)


_SIGNATURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


def _mime(data: bytes) -> str:
    for start, mime in _SIGNATURES:
        if data.startswith(start):
            return mime
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise ValueError('the type of the image cannot be told from its first bytes: say it, as in image(data, "image/svg+xml")')


class Notify(Value):
    """A short word to the person."""

    __slots__ = ("message", "level")  # noqa: RUF023  (the order of the members)

    def __init__(self, message: str, level: str = "info") -> None:
        self.message, self.level = message, level


class SetStatus(Value):
    """A segment of the status line; an empty text takes it away."""

    __slots__ = ("key", "text")

    def __init__(self, key: str, text: str = "") -> None:
        self.key, self.text = key, text


class SetTitle(Value):
    """The session's title."""

    __slots__ = ("title",)

    def __init__(self, title: str) -> None:
        self.title = title


class AttachImage(Value):
    """An image for the next message of the person."""

    __slots__ = ("data", "mime")

    def __init__(self, data: bytes, mime: str = "") -> None:
        image = Image(data, mime)
        self.data, self.mime = image.data, image.mime


class DetachImage(Value):
    """Take that image away again."""

    __slots__ = ()


class Quit(Value):
    """End the program that the person talks to."""

    __slots__ = ()


class Handled(Value):
    """The answer of an input transformer that has done all there is to do: the agent is not asked."""

    __slots__ = ()


Action = Notify | Display | Prompt | SetStatus | SetTitle | AttachImage | DetachImage | Quit
