"""Services about models (spec piglet 6.5, 7.1).

`ModelService` lists models, switches to another, and changes a person's `models.toml`. `ChatService` is a model for guests: one
answer, or a private agent that works for them; nothing of it is reported or stored. `CredentialService` gives keys of providers to
guests to which a person has granted them (design rule 13); no value is ever logged.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from serai import paths
from serai.agents.driver import Prompt
from serai.agents.models.catalogue import FILE, MOST_TOKENS, Catalogue, Override, list_key_variables
from serai.agents.resident import conversation
from serai.agents.resident.conversation import Conversation
from serai.agents.resident.model_call import ModelCall
from serai.agents.resident.run import Run
from serai.agents.resident.run_context import DEFAULT, PromptParts, RunContext, RunOutput, ToolSet
from serai.app import settings_writer
from serai.app.services.router import Data, NoArguments, Operation, ServiceGrants, normalize_provider
from serai.errors import BadRequest, BadSettings, NoModel, Refused, TurnLimit
from serai.limits import Limits
from serai.model.actions import Action, SetStatus
from serai.model.events import Event, Message, Usage
from serai.model.provider import Model, ModelMessage, ModelOptions, ModelProvider, ModelRequest
from serai.model.tools import TextBlock, ToolBox

_RUNS = 8  # agents that work for one guest: one whose tool has another work for it would never come to an end
Take = Callable[[str], tuple[Model, ModelProvider]]


class Said(msgspec.Struct, frozen=True):
    content: str
    role: str = "user"  # `assistant`; everything else is the user's


class ChatArgs(msgspec.Struct, frozen=True):
    messages: list[Said]
    system: str | None = None
    model: str | None = None
    max_tokens: int | None = None


class TaskArgs(msgspec.Struct, frozen=True):
    task: str
    system: str | None = None
    tools: str | None = None  # `all`; everything else means those that may run in the background
    model: str | None = None
    max_turns: int | None = None


class ChatService:
    """`take` finds the model that a query means; `run_context` is what the resident works with, and `box` has its tools.

    `allowed` are those that the person lets agents have, None for all. `ready` raises while a guard is down; `nested` says whether
    a tool of that guest runs for a guest.
    """

    def __init__(
        self,
        take: Take,
        run_context: Callable[[], RunContext],
        box: ToolBox,
        limits: Limits,
        *,
        allowed: Callable[[], Collection[str] | None] = lambda: None,
        ready: Callable[[], None] = lambda: None,
        nested: Callable[[str], bool] = lambda _guest: False,
    ) -> None:
        self._nested = nested
        self._take = take
        self._ready = ready
        self._open: Counter[str] = Counter()  # agents that work, by guest
        self._run_context = run_context
        self._box = box
        self._limits = limits
        self._allowed = allowed
        self.operations: Mapping[str, Operation[Any]] = {
            "chat": Operation(ChatArgs, self.chat),
            "run": Operation(TaskArgs, self.run),
        }

    async def chat(self, guest: str, ask: ChatArgs) -> Data:
        """One call of a model, without tools; one that fails is not tried again."""
        if not ask.messages:
            raise BadRequest("chat: messages must not be empty", who=guest)
        model, provider = self._take(ask.model or "")
        options = ModelOptions(max_tokens=ask.max_tokens if ask.max_tokens and ask.max_tokens > 0 else None)
        request = ModelRequest(model, tuple(map(_to_model_message, ask.messages)), ask.system or "", options=options)
        answer = await ModelCall(RunOutput(), self._limits.but(model_attempts=1)).get(provider, request)
        text = "".join(block.text for block in answer.message.content if isinstance(block, TextBlock))
        return {"text": text, "usage": _dump_usage(answer.usage)}

    async def run(self, guest: str, task: TaskArgs) -> Data:
        """All that a private agent said. Its calls are the guest's, and are decided like everybody's (spec piglet 10.35).

        A model that fails is an error (FIX-29). One that was stopped has said something all the same: `stopped` tells why.
        """
        if not task.task.strip():
            raise BadRequest("run: the task is empty", who=guest)
        self._ready()
        if self._open[guest] >= _RUNS:
            raise Refused(f"{_RUNS} agents work for it already: does one of them lead to another?", who=guest)
        if self._nested(guest):  # each of its steps could begin as many again
            raise Refused("what works for a guest begins no agent of its own", who=guest)
        self._open[guest] += 1
        try:
            return await self._run(guest, task)
        finally:
            self._open[guest] -= 1

    async def _run(self, guest: str, task: TaskArgs) -> Data:
        model, provider = self._take(task.model or "")
        run_context = replace(
            self._run_context(), model=model, provider=provider, parts=lambda: PromptParts(base=task.system or DEFAULT), asker=guest
        )
        most = task.max_turns if task.max_turns and task.max_turns > 0 else self._limits.steps
        heard = _Heard()
        tools = ToolSet(self._box, only=self._allowed(), background=task.tools != "all")
        run = Run(run_context, heard, Conversation(), tools, most=most)
        run.begin(Prompt(task.task))
        stopped = ""
        try:
            result = await run.play()
            stopped = "denied" if result.status == "denied" else ""
        except TurnLimit as limit:
            result, stopped = run.build_result("error", str(limit)), "max_turns"
        finally:
            run.stop()
        data = {"text": "\n".join(heard.texts), "turns": result.steps, "usage": _dump_usage(result.usage)}
        return data | ({"stopped": stopped} if stopped else {})


class _Heard(RunOutput):
    """Nobody is told; what may be seen of the model's words is kept for the one who asked."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, event: Event) -> None:
        if isinstance(event, Message):
            self.texts += [block.text for block in event.content if isinstance(block, TextBlock)]


def _to_model_message(said: Said) -> ModelMessage:
    if said.role == "assistant":
        return ModelMessage("assistant", (TextBlock(said.content),))
    return conversation.build_user_message(said.content)


def _dump_usage(usage: Usage) -> Data:
    return {"input": usage.input, "output": usage.output}


_KEYS = frozenset({"x-api-key", "api-key", "x-goog-api-key"})  # headers that are nothing but a key


class ProviderArgs(msgspec.Struct, frozen=True):
    provider: str


class CredentialService:
    """`granted` says whose keys a guest may have; `environ` has them, if the person's `models.toml` does not.

    `known` is told each value, with a name for it, before a guest gets it: it must not get into a recording.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        granted: Callable[[str], ServiceGrants],
        known: Callable[[str, str], object] = lambda _name, _value: None,
    ) -> None:
        self._environ = environ
        self._granted = granted
        self._known = known
        self.operations: Mapping[str, Operation[Any]] = {"key": Operation(ProviderArgs, self.key)}

    async def key(self, guest: str, wanted: ProviderArgs) -> Data:
        """The key, or "": not granted, not there and not known look the same, so that nobody learns which keys there are."""
        provider = normalize_provider(wanted.provider)
        if not provider or provider not in self._granted(guest).keys:
            return {"key": ""}
        in_variables = (key for name in list_key_variables(provider) if (key := self._environ.get(name, "").strip()))
        key = self._find_stored_key(provider) or next(in_variables, "")
        if key:
            self._known(f"the key of {provider}", key)
        return {"key": key}

    def _find_stored_key(self, provider: str) -> str:
        """What the person has written down for one of its models, as a header that carries a key and nothing else."""
        try:
            models = [model for model in Catalogue.load(self._environ) if normalize_provider(model.provider) == provider]
        except BadSettings:  # that it cannot be read is told elsewhere; here nothing is told
            return ""
        headers = [(name.lower(), value.strip()) for model in models for name, value in model.headers.items()]
        plain = (value for name, value in headers if name in _KEYS)
        bearer = (rest.strip() for name, value in headers if name == "authorization" for rest in [_parse_bearer(value)])
        return next(filter(None, (*plain, *bearer)), "")


def _parse_bearer(value: str) -> str:
    scheme, _, rest = value.partition(" ")
    return rest if scheme.lower() == "bearer" else ""


class SwitchArgs(msgspec.Struct, frozen=True):
    model: str
    persist: bool = False


Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class ChangeArgs(msgspec.Struct, frozen=True):
    """Empty and 0 leave things as they are."""

    name: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    context_window: Tokens | None = None
    max_tokens: Tokens | None = None


class OverridesArgs(msgspec.Struct, frozen=True):
    overrides: dict[str, ChangeArgs] | None = None


class ModelService:
    """`current` gives the key of the agent's model, `switch` takes another; `show` tells the person which it is.

    `catalogue` are all models as they are known now, `probe` asks the servers of this machine for theirs.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        current: Callable[[], str],
        switch: Callable[[str], Awaitable[str]],
        show: Callable[[Action], None],
        *,
        catalogue: Callable[[], Catalogue] | None = None,
        probe: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._environ = environ
        self._current = current
        self._switch = switch
        self._show = show
        self._catalogue = catalogue or (lambda: Catalogue.load(environ))
        self._probe = probe
        self.operations: Mapping[str, Operation[Any]] = {
            "list": Operation(NoArguments, self.list),
            "switch": Operation(SwitchArgs, self.switch),
            "sync": Operation(NoArguments, self.sync),
            "write": Operation(OverridesArgs, self.write),
        }

    async def list(self, _guest: str, _arguments: NoArguments) -> Data:
        """By provider and id; the one in use is marked."""
        current = self._current()
        found = sorted(self._catalogue(), key=lambda model: (model.provider, model.id))
        return {"models": [_dump_model(model) | {"current": model.key == current} for model in found]}

    async def switch(self, guest: str, wanted: SwitchArgs) -> Data:
        """Another model from the next step on; `persist`: in later runs too."""
        if not wanted.model:
            raise BadRequest("switch: the model is required", who=guest, hint="name it as PROVIDER/ID")
        model = self._find_model(wanted.model)
        await self._switch(model.key)
        self._show(SetStatus("model", _format_name(model)))
        if wanted.persist:
            settings_writer.set_toml_value(
                os.path.join(paths.config_folder(self._environ), "config.toml"), "default_model", model.key
            )
        return {}

    async def sync(self, _guest: str, _arguments: NoArguments) -> Data:
        """How many there are now: `models.toml` is read whenever a model is looked for, servers of this machine are asked here."""
        if self._probe is not None:
            await self._probe()
        return {"updated": len(self._catalogue().models)}

    async def write(self, _guest: str, wanted: OverridesArgs) -> Data:
        """Change what is known of models. All of them are known, or nothing is written."""
        changes = [
            Override(self._find_model(key).key, change.name or "", change.context_window or 0, change.max_tokens or 0)
            for key, change in (wanted.overrides or {}).items()
        ]
        return {
            "models_written": settings_writer.write_model_overrides(os.path.join(paths.config_folder(self._environ), FILE), changes)
        }

    def _find_model(self, key: str) -> Model:
        model = self._catalogue().get(key)
        if model is None:
            raise NoModel(f"unknown model: {key}", hint="name it as PROVIDER/ID, as `serai model list` shows it")
        return model


def _format_name(model: Model) -> str:
    return f"{model.provider}/{model.name}"


def _dump_model(model: Model) -> Data:
    """Neither its headers nor its address: both may hold keys."""
    data: Data = {"id": model.id, "api": model.api, "display_name": _format_name(model), "provider": model.provider}
    others = {
        "context_window": model.context_window,
        "max_tokens": model.max_tokens,
        "reasoning": model.reasoning,
        "cost_input": model.cost.input,
        "cost_output": model.cost.output,
    }
    return data | {key: value for key, value in others.items() if value}
