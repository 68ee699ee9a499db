"""Parrot: the model that needs no key and no network. It repeats what it is told, and does what a script tells it.

In the script language a prompt says what the model shall answer. Parrot and the loopback fakes speak it.

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
is seen from the request alone: `choose_answer` counts the answers since the script. Nothing here does IO, keeps state or raises.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Literal

import msgspec

from serai.agents.models.api_provider import AnswerBuilder, AnswerPart, extract_text
from serai.agents.models.catalogue import PARROT, Catalogue
from serai.agents.models.http_client import EndpointErrors
from serai.errors import Closed
from serai.limits import AgentLimits
from serai.model import events
from serai.model.provider import Chunk, Completion, Model, ModelRequest

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

    def iter_directives(self) -> Iterator[Plain]:
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

    def get_step(self, number: int) -> ModelStep | None:
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

    def fill(self, text: str) -> str:
        """The text of a `say` with `$results`, `$prompt` and `$system` in place, each looked at once."""
        return _VARIABLES.sub(self._get_value, text) if "$" in text else text

    def _get_value(self, found: re.Match[str]) -> str:
        match found[1]:
            case "results":
                return "\n".join(self.results)
            case "prompt":
                return self.prompt
        return str(len(self.system))


def choose_answer(said: Sequence[ScriptMessage], system: str = "") -> ScriptedAnswer:
    """What such a request is answered with. Adjacent messages of the assistant are one answer (an API may split them)."""
    start = next((n for n in reversed(range(len(said))) if said[n].role == "user" and is_scripted(said[n].text)), None)
    prompt = next((strip_script(message.text) for message in reversed(said) if message.role == "user"), "")
    results = _find_newest_results(said)
    step = None
    if start is not None:
        after = said[start + 1 :]
        number = sum(one.role == "assistant" and (n == 0 or after[n - 1].role != "assistant") for n, one in enumerate(after))
        step = parse(said[start].text).get_step(number)
    if step is None:
        answered = bool(said) and said[-1].role == "tool"
        step = build_usual_step(prompt, results if answered else ())
    return ScriptedAnswer(step, prompt, results, system)


def _find_newest_results(said: Sequence[ScriptMessage]) -> tuple[str, ...]:
    """The results of the newest block of tool messages since the assistant spoke."""
    results: list[str] = []
    for message in reversed(said):
        if message.role == "assistant":
            break
        if message.role == "tool":
            results.append(message.text)
    return tuple(reversed(results))


def build_usual_step(prompt: str, results: Sequence[str] = ()) -> ModelStep:
    """The answer without a script, by fixed rules: what the tools said, else what the person said."""
    if results:
        return ModelStep((Say(f"The tools said: {_shorten(' '.join(results))}"),))
    if prompt.strip():
        return ModelStep((Say(f"You said: {prompt.strip()}"),))
    return ModelStep(
        (Say("You said nothing. I repeat what I am told; lines that begin with `>> ` tell me what to do: `>> say hello`."),)
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}… ({len(text)} characters)"


def is_scripted(text: str) -> bool:
    return text.startswith(_MARK) or f"\n{_MARK}" in text


def strip_script(text: str) -> str:
    """The text without the lines of its script."""
    if not is_scripted(text):
        return text
    return "\n".join(line for line in text.split("\n") if not line.startswith(_MARK)).strip("\n")


def split_pieces(text: str) -> Iterator[str]:
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
        directive = _parse_directive(line.removesuffix("\r")[len(_MARK) :])
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


def _parse_directive(line: str) -> Directive | None:
    """One line as a directive; None is `loop`, which is said of the script as a whole."""
    word, _, rest = line.lstrip().partition(" ")
    if word == "loop" and not rest.strip():
        return None
    made = _DIRECTIVES[word](rest) if word in _DIRECTIVES else None
    return made or Say(f"`{_shorten(line)}` is no directive; there are: {', '.join(sorted((*_DIRECTIVES, 'loop')))}.")


def _parse_text(rest: str) -> str:
    """A JSON string is unquoted; everything else is meant as it stands."""
    bare = rest.strip()
    if len(bare) > 1 and bare[0] == bare[-1] == '"':
        try:
            return msgspec.json.decode(bare, type=str)
        except (ValueError, RecursionError):
            pass
    return rest


def _parse_call(rest: str) -> Call | None:
    name, _, arguments = rest.strip().partition(" ")
    return Call(name, arguments.strip() or "{}") if name else None


def _parse_repeat(rest: str) -> Repeat | None:
    number, _, line = rest.lstrip().partition(" ")
    if not number.isascii() or not number.isdigit():
        return None
    directive = _parse_directive(line)
    if not isinstance(directive, Say | Think | Call | Wait):
        return None
    length = len(directive.arguments if isinstance(directive, Call) else "" if isinstance(directive, Wait) else directive.text)
    return Repeat(min(int(number.lstrip("0")[:9] or "0"), _MOST // max(length, 1)), directive)


def _parse_stop(rest: str) -> Stop | None:
    return Stop(rest.strip()) if rest.strip() else None


def _parse_fail(rest: str) -> Fail | None:
    found = _FAIL.fullmatch(rest.strip())
    return Fail(int(found[1]), (found[2] or "").strip('"'), found[3] or "") if found else None


def _parse_wait(rest: str) -> Wait | None:
    try:
        seconds = float(rest)
    except ValueError:
        return None
    return Wait(seconds) if 0 <= seconds <= _LONGEST_WAIT else None


_DIRECTIVES: dict[str, Callable[[str], Directive | None]] = {
    "call": _parse_call,
    "cut": lambda rest: None if rest.strip() else Cut(),
    "fail": _parse_fail,
    "hang": lambda rest: None if rest.strip() else Hang(),
    "malformed": lambda rest: None if rest.strip() else Malformed(),
    "repeat": _parse_repeat,
    "say": lambda rest: Say(_parse_text(rest)),
    "stop": _parse_stop,
    "think": lambda rest: Think(_parse_text(rest)),
    "wait": _parse_wait,
}


_STOPS: dict[str, events.Stop] = {"length": "length", "max_tokens": "length", "end": "end", "stop": "end", "tool_use": "tool_use"}
_BREATH = 64  # chunks; then others get their turn


class Parrot:
    """A `ModelProvider` that answers by the script language. The same request has the same answer."""

    def __init__(self, limits: AgentLimits | None = None) -> None:
        self._limits = limits or AgentLimits()
        self._closed = False

    async def models(self) -> Sequence[Model]:
        model = Catalogue.load_built_in().get(PARROT)
        assert model is not None
        return (model,)

    async def close(self) -> None:
        self._closed = True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Completion, None]:
        if self._closed:
            raise Closed("the provider is closed", who=request.model.key)
        answer = _ScriptedAnswer(request, EndpointErrors(request.model.key, self._limits))
        number = 0
        async for chunk in answer.iter_chunks():
            yield chunk
            number += 1
            if number % _BREATH == 0:
                await asyncio.sleep(0)
        yield answer.build_completion()


class _ScriptedAnswer:
    """One step of a script, played."""

    def __init__(self, request: ModelRequest, failures: EndpointErrors) -> None:
        self._failures = failures
        self._answer = AnswerBuilder(request, failures)
        said = [ScriptMessage(message.role, extract_text(message.content)) for message in request.messages]
        self._script = choose_answer(said, request.system)
        results = [message.call_id for message in request.messages]
        self._seed = msgspec.json.encode([request.model.key, request.system, said, results])
        self._heard = sum(len(one.text) for one in said) + len(request.system)

    async def iter_chunks(self) -> AsyncIterator[Chunk]:
        failure = self._script.step.failure
        if failure is not None:
            headers = {"retry-after": failure.retry_after} if failure.retry_after else {}
            raise self._failures.build_status_error(failure.status, headers, failure.text or "as the script says")
        for directive in self._script.step.iter_directives():
            match directive:
                case Say(text):
                    self._add(self._answer.get_or_begin("text"), self._script.fill(text))
                case Think(text):
                    self._add(self._answer.get_or_begin("thinking"), text)
                case Call(name, arguments):
                    self._add(self._answer.begin("tool_input", id=self._make_id(), name=name), arguments)
                case Wait(seconds):
                    await self._wait(seconds)
                case Hang():
                    await self._wait(float("inf"))
                case Cut():
                    raise self._failures.make_broken_off()
                case Malformed():
                    raise self._failures.make_not_understood("as the script says")
                case Stop(reason):
                    self._answer.stop = _STOPS.get(reason, "error")
                    self._answer.reason = reason if self._answer.stop == "error" else ""
                case Fail():  # told above
                    pass
            for chunk in self._answer.fresh:
                yield chunk
            self._answer.fresh.clear()

    def build_completion(self) -> Completion:
        said = sum(len(piece) for part in self._answer.parts for piece in part.pieces)
        completion = self._answer.build()
        # Four characters are about a token. It costs nothing, and that is known.
        return msgspec.structs.replace(completion, usage=events.Usage(-(-self._heard // 4), -(-said // 4), cost_usd=0.0))

    def _add(self, part: AnswerPart, text: str) -> None:
        for piece in split_pieces(text):
            self._answer.add(part, piece)

    def _make_id(self) -> str:
        """Like a real one, and the same for the same request."""
        number = len(self._answer.parts)
        return f"call_{hashlib.sha256(self._seed + b'%d' % number).hexdigest()[:24]}"

    async def _wait(self, seconds: float) -> None:
        if seconds <= self._failures.limits.model_idle:
            await asyncio.sleep(seconds)
            return
        await asyncio.sleep(self._failures.limits.model_idle)
        raise self._failures.make_idle()
