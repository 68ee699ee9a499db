"""The script language: a prompt that says what the model shall answer. Parrot and the loopback fakes speak it.

Lines of a user's text that begin with `>> ` are directives, all others are not part of the script:

    >> think TEXT                          thinking
    >> say TEXT                            text; a JSON string in double quotes is unquoted: >> say "two\\nlines"
    >> call NAME {JSON}                    a tool call; the arguments go out as they stand, also when they are no JSON
    >> repeat N DIRECTIVE                  say, think, call or wait N times
    >> stop REASON                         the reason why this answer ends: length, refusal, …
    >> fail STATUS [retry-after=S] [TEXT]  the request fails with that HTTP status
    >> cut                                 the connection breaks here
    >> malformed                           an event that is no JSON comes here
    >> hang                                nothing more comes
    >> wait SECONDS                        a pause
    >> loop                                the last step again, for ever

A *step* is what one request is answered with: directives up to and including a block of adjacent calls. Which step a request wants
is seen from the request alone: `answer` counts the answers since the script. Nothing here does IO, keeps state or raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

_MARK = ">> "
_MOST = 100_000_000  # characters of one repeat: enough to be far too much for every client
_SHORT = 400  # characters of the tools' results in a usual answer
_LONGEST_WAIT = 3600.0
_WORDS = re.compile(r"\S*\s+|\S+")
_VARIABLES = re.compile(r"\$(results|prompt|system)\b")
_FAIL = re.compile(r'([45]\d\d)(?:\s+retry-after=("[^"]*"|\S+))?(?:\s+(.*))?', re.DOTALL)


class Say(msgspec.Struct, frozen=True, tag=True):
    text: str


class Think(msgspec.Struct, frozen=True, tag=True):
    text: str


class Call(msgspec.Struct, frozen=True, tag=True):
    """`arguments` are a text: JSON, or what a broken model would send."""

    name: str
    arguments: str = "{}"


class Wait(msgspec.Struct, frozen=True, tag=True):
    seconds: float


class Repeat(msgspec.Struct, frozen=True, tag=True):
    count: int
    directive: Say | Think | Call | Wait


class Stop(msgspec.Struct, frozen=True, tag=True):
    reason: str


class Fail(msgspec.Struct, frozen=True, tag=True):
    """`retry_after` is the header's value: seconds or a date; empty: no such header."""

    status: int
    retry_after: str = ""
    text: str = ""


class Cut(msgspec.Struct, frozen=True, tag=True):
    pass


class Malformed(msgspec.Struct, frozen=True, tag=True):
    pass


class Hang(msgspec.Struct, frozen=True, tag=True):
    pass


Plain = Say | Think | Call | Wait | Stop | Fail | Cut | Malformed | Hang
Directive = Plain | Repeat


class ModelStep(msgspec.Struct, frozen=True):
    """What one request is answered with."""

    directives: tuple[Directive, ...] = ()

    def each(self) -> Iterator[Plain]:
        """The directives one by one, what repeats as often as it does: made while it is read, never held."""
        for directive in self.directives:
            if isinstance(directive, Repeat):
                for _ in range(directive.count):
                    yield directive.directive
            else:
                yield directive

    @property
    def failure(self) -> Fail | None:
        """How the whole request fails, if it does: a status comes before everything else."""
        return next((directive for directive in self.directives if isinstance(directive, Fail)), None)

    @property
    def stop(self) -> str:
        """The reason to stop that was asked for; empty: the usual one."""
        return next((directive.reason for directive in self.directives if isinstance(directive, Stop)), "")


class ModelScript(msgspec.Struct, frozen=True):
    """The steps of a script; `loops`: the last one again, for ever."""

    steps: tuple[ModelStep, ...] = ()
    loops: bool = False

    def step(self, number: int) -> ModelStep | None:
        """The step of that number from 0 on; None behind the last."""
        if number < len(self.steps):
            return self.steps[number]
        return self.steps[-1] if self.loops and self.steps else None


class ScriptMessage(msgspec.Struct, frozen=True):
    """A message of a request in neutral words: a tool's result is said by `tool`."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""


class ScriptedAnswer(msgspec.Struct, frozen=True):
    """The step that a request wants, and what its texts may speak of."""

    step: ModelStep
    prompt: str = ""
    results: tuple[str, ...] = ()
    system: str = ""

    def filled(self, text: str) -> str:
        """The text of a `say` with `$results`, `$prompt` and `$system` in place, each looked at once."""
        return _VARIABLES.sub(self._value, text) if "$" in text else text

    def _value(self, found: re.Match[str]) -> str:
        match found[1]:
            case "results":
                return "\n".join(self.results)
            case "prompt":
                return self.prompt
        return str(len(self.system))


def answer(said: Sequence[ScriptMessage], system: str = "") -> ScriptedAnswer:
    """What such a request is answered with. Adjacent messages of the assistant are one answer (an API may split them)."""
    start = next((n for n in reversed(range(len(said))) if said[n].role == "user" and is_scripted(said[n].text)), None)
    prompt = next((unscripted(message.text) for message in reversed(said) if message.role == "user"), "")
    results = _newest_results(said)
    step = None
    if start is not None:
        after = said[start + 1 :]
        number = sum(one.role == "assistant" and (n == 0 or after[n - 1].role != "assistant") for n, one in enumerate(after))
        step = parse(said[start].text).step(number)
    if step is None:
        answered = bool(said) and said[-1].role == "tool"
        step = usual(prompt, results if answered else ())
    return ScriptedAnswer(step, prompt, results, system)


def _newest_results(said: Sequence[ScriptMessage]) -> tuple[str, ...]:
    """The results of the newest block of tool messages since the assistant spoke."""
    results: list[str] = []
    for message in reversed(said):
        if message.role == "assistant":
            break
        if message.role == "tool":
            results.append(message.text)
    return tuple(reversed(results))


def usual(prompt: str, results: Sequence[str] = ()) -> ModelStep:
    """The answer without a script, by fixed rules: what the tools said, else what the person said."""
    if results:
        return ModelStep((Say(f"The tools said: {_shortened(' '.join(results))}"),))
    if prompt.strip():
        return ModelStep((Say(f"You said: {prompt.strip()}"),))
    return ModelStep(
        (Say("You said nothing. I repeat what I am told; lines that begin with `>> ` tell me what to do: `>> say hello`."),)
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}… ({len(text)} characters)"


def is_scripted(text: str) -> bool:
    return text.startswith(_MARK) or f"\n{_MARK}" in text


def unscripted(text: str) -> str:
    """The text without the lines of its script."""
    if not is_scripted(text):
        return text
    return "\n".join(line for line in text.split("\n") if not line.startswith(_MARK)).strip("\n")


def pieces(text: str) -> Iterator[str]:
    """A text as it streams: word by word."""
    for found in _WORDS.finditer(text):
        yield found[0]


def parse(text: str) -> ModelScript:
    """The script in a text. Never raises: a line that is no directive becomes a `say` that tells so."""
    steps: list[ModelStep] = []
    step: list[Directive] = []
    loops = called = False
    for line in text.split("\n"):
        if not line.startswith(_MARK):
            continue
        directive = _directive(line.removesuffix("\r")[len(_MARK) :])
        if directive is None:
            loops = True
            continue
        calls = isinstance(directive.directive if isinstance(directive, Repeat) else directive, Call)
        if called and not calls:
            steps.append(ModelStep(tuple(step)))
            step = []
        step.append(directive)
        called = calls
    if step:
        steps.append(ModelStep(tuple(step)))
    return ModelScript(tuple(steps), loops)


def _directive(line: str) -> Directive | None:
    """One line as a directive; None is `loop`, which is said of the script as a whole."""
    word, _, rest = line.lstrip().partition(" ")
    if word == "loop" and not rest.strip():
        return None
    made = _DIRECTIVES[word](rest) if word in _DIRECTIVES else None
    return made or Say(f"`{_shortened(line)}` is no directive; there are: {', '.join(sorted((*_DIRECTIVES, 'loop')))}.")


def _text(rest: str) -> str:
    """A JSON string is unquoted; everything else is meant as it stands."""
    bare = rest.strip()
    if len(bare) > 1 and bare[0] == bare[-1] == '"':
        try:
            return msgspec.json.decode(bare, type=str)
        except (ValueError, RecursionError):
            pass
    return rest


def _call(rest: str) -> Call | None:
    name, _, arguments = rest.strip().partition(" ")
    return Call(name, arguments.strip() or "{}") if name else None


def _repeat(rest: str) -> Repeat | None:
    number, _, line = rest.lstrip().partition(" ")
    if not number.isascii() or not number.isdigit():
        return None
    directive = _directive(line)
    if not isinstance(directive, Say | Think | Call | Wait):
        return None
    length = len(directive.arguments if isinstance(directive, Call) else "" if isinstance(directive, Wait) else directive.text)
    return Repeat(min(int(number.lstrip("0")[:9] or "0"), _MOST // max(length, 1)), directive)


def _stop(rest: str) -> Stop | None:
    return Stop(rest.strip()) if rest.strip() else None


def _fail(rest: str) -> Fail | None:
    found = _FAIL.fullmatch(rest.strip())
    return Fail(int(found[1]), (found[2] or "").strip('"'), found[3] or "") if found else None


def _wait(rest: str) -> Wait | None:
    try:
        seconds = float(rest)
    except ValueError:
        return None
    return Wait(seconds) if 0 <= seconds <= _LONGEST_WAIT else None


_DIRECTIVES: dict[str, Callable[[str], Directive | None]] = {
    "call": _call,
    "cut": lambda rest: None if rest.strip() else Cut(),
    "fail": _fail,
    "hang": lambda rest: None if rest.strip() else Hang(),
    "malformed": lambda rest: None if rest.strip() else Malformed(),
    "repeat": _repeat,
    "say": lambda rest: Say(_text(rest)),
    "stop": _stop,
    "think": lambda rest: Think(_text(rest)),
    "wait": _wait,
}
