"""`serai.agent("resident")`: the resident with everything it needs, and defaults for what the caller does not give."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from serai import paths
from serai.agents.driver import Compactor, DecideCall, Interceptors, NoInterceptors
from serai.agents.models.providers import ProviderPool
from serai.agents.resident.driver import Resident, SharedResources
from serai.agents.resident.run_context import DEFAULT, PromptParts, RunContext
from serai.agents.session import Session
from serai.errors import BadSettings
from serai.limits import AgentLimits, Limits
from serai.model.contributions import PromptSection
from serai.model.provider import Model, ModelMessage, ModelOptions, ModelProvider
from serai.model.tools import ToolBox
from serai.store.messages import sum_usage, to_model_message
from serai.store.session_folder import CurrentSession
from serai.store.stored_session import StoredSession as Stored
from serai.tools import BuiltInTools, FileSnapshots
from serai.wire.plain_process import PlainSpawner


def resident(
    *,
    cwd: str | os.PathLike[str] = ".",
    model: str | Model = "",
    provider: ModelProvider | None = None,
    provider_pool: ProviderPool | None = None,
    tools: ToolBox | None = None,
    also: Sequence[str | os.PathLike[str]] = (),
    decide: DecideCall | None = None,
    system: str | None = None,
    sections: Iterable[PromptSection] | Callable[[], Iterable[PromptSection]] = (),
    store: Stored | CurrentSession | None = None,
    history: Iterable[ModelMessage] = (),
    session_id: str = "",
    interceptors: Interceptors | None = None,
    compactor: Compactor | None = None,
    compact_at: Callable[[], int] = lambda: 0,
    options: ModelOptions | None = None,
    step_mode: bool = False,
    limits: AgentLimits | None = None,
    environ: Mapping[str, str] = os.environ,
    settings: Mapping[str, Any] | None = None,
) -> Session:
    """A session with the resident.

    * `model`: a query as `serai run --model` takes it, or a `Model`; empty means the one that is configured, or that a key is there
      for, or the offline parrot. `provider` streams it, if it is none of the usual ones; `provider_pool` has those that
      somebody else uses too, and closes.
    * `tools`: what it may call; without them the built-in tools, confined to `cwd` and the folders of `also`.
    * `decide`: may this call run? Without it every call is an `Approval` for whoever reads the turn.
    * `compactor` shortens a conversation that has grown too long; `compact_at` says after how many tokens it is asked, 0 for only
      when the model is nearly full.
    * `sections`: more of the system prompt; a function is asked at every turn.
    * `system`: the system prompt, else `prompt.md` beside `config.toml`, else the setting `system_prompt`, else our own.
    * `settings`, `limits`: those of `config.toml`, unless others are given.
    * `store`: where the conversation is kept; what is in it already is where the conversation goes on. `history` is for one that is
      kept elsewhere.
    """
    settings = paths.read_settings(environ) if settings is None else settings
    limits = limits or _read_limits(settings)
    folder = os.path.realpath(os.fspath(cwd))
    if not os.path.isdir(folder):
        raise BadSettings("it is no folder", who=folder, hint="give an existing folder as cwd")
    mine = ProviderPool(environ, settings, limits) if provider_pool is None else None
    provider_pool = mine or provider_pool
    assert provider_pool is not None
    chosen, streams, notice = provider_pool.select(model, provider, unchecked=True)
    base = _read_base(environ, settings) if system is None else system
    order = _read_order(settings)
    told = sections if callable(sections) else tuple(sections)

    def build_parts() -> PromptParts:
        return PromptParts(base=base, sections=tuple(told()) if callable(told) else told, order=order)

    context = RunContext(
        model=chosen,
        provider=streams,
        limits=limits,
        decide=decide,
        interceptors=interceptors or NoInterceptors(),
        compactor=compactor,
        compact_at=compact_at,
        parts=build_parts,
        options=options or ModelOptions(),
        step_mode=step_mode,
    )
    spawner: PlainSpawner | None = None
    if tools is None:
        spawner = PlainSpawner(limits)
        tools = BuiltInTools(
            folder,
            spawner=spawner,
            outside=lambda call, path: path in context.approved.get(id(call), ()),
            also=also,
            undo=FileSnapshots.usual(environ, limits=limits),
            limits=limits,
            environ=environ,
        )
        context.leads_outside = tools.leads_outside

    async def close() -> None:
        if spawner is not None:
            await spawner.close()
        if mine is not None:
            await mine.close()

    stored = _get_stored(store)
    said = stored.read_messages() if stored is not None else []
    driver = Resident(
        context,
        tools,
        before=[*history, *map(to_model_message, said)],
        session_id=session_id or (stored.id if stored is not None else ""),
        switch=lambda query: provider_pool.select(query, None)[:2],
        notice=notice,
        on_model=lambda key: _remember(store, key),
        shared=SharedResources(close),
    )
    driver.conversation.usage = sum_usage(said)
    return Session(driver, store=store, limits=limits)


def _read_limits(settings: Mapping[str, Any]) -> AgentLimits:
    try:
        said = settings.get("limits", {})
        return Limits().but(**{name: None if value == "none" else value for name, value in said.items()})
    except (AttributeError, TypeError, ValueError) as error:
        raise BadSettings(f"limits: {error}", who="config.toml", hint="docs/wire.md lists the limits") from None


def _read_base(environ: Mapping[str, str], settings: Mapping[str, Any]) -> str:
    """The beginning of the system prompt (spec piglet 6.9)."""
    try:
        with open(os.path.join(paths.config_folder(environ), "prompt.md"), encoding="utf-8", errors="replace") as file:
            if text := file.read().strip():
                return text
    except FileNotFoundError:
        pass
    except OSError as error:
        raise BadSettings(str(error), who="prompt.md") from None
    text = settings.get("system_prompt", "")
    if not isinstance(text, str):
        raise BadSettings("system_prompt is a text", who="config.toml")
    return text.strip() or DEFAULT


def _read_order(settings: Mapping[str, Any]) -> dict[str, int]:
    order = settings.get("prompt_order", {})
    if not isinstance(order, dict) or not all(type(place) is int for place in order.values()):
        raise BadSettings("prompt_order has a number for each title", who="config.toml")
    return order


def _get_stored(store: Stored | CurrentSession | None) -> Stored | None:
    return store.session if isinstance(store, CurrentSession) else store


def _remember(store: Stored | CurrentSession | None, key: str) -> None:
    stored = _get_stored(store)
    if stored is not None and stored.meta.model != key:
        stored.set_model(key)
