"""Everything that a host can be asked for and told: the 52 services and the notifications of piglet (spec piglet 7).

What is asked is on its way when the function returns; its `Reply` is awaited, or waited for with `.result()`, or let go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from serai.sdk import host_records
from serai.sdk.answers import ToolResult
from serai.sdk.host_requests import PendingRequests, Published, Reply, Subscription
from serai.sdk.registrations import Handler

T = TypeVar("T")
Several = list  # which is a method's name in the classes below
Message = Mapping[str, Any]
Placement = Literal["above-input", "below-status"]


class Group:
    def __init__(self, line: PendingRequests) -> None:
        self._line = line

    def _ask_void(self, method: str, **params: Any) -> Reply[None]:
        return self._line.ask(method, _given(params), lambda _: None)

    def _ask_member(self, method: str, key: str, empty: T, **params: Any) -> Reply[T]:
        """The one member of the answer that says something."""

        def get_member(result: Any) -> Any:
            found = host_records.fold_keys(result, (key,)).get(key)
            return found if isinstance(found, type(empty)) else empty

        return self._line.ask(method, _given(params), get_member)

    def _ask_records(self, method: str, key: str, record: Callable[..., Any], **params: Any) -> Reply[list[Any]]:
        return self._line.ask(
            method,
            _given(params),
            lambda result: host_records.build_records(record, host_records.fold_keys(result, (key,)).get(key)),
        )

    def _record(self, method: str, record: Callable[..., Any], **params: Any) -> Reply[Any]:
        return self._line.ask(method, _given(params), lambda result: host_records.build_record(record, result))


class Tools(Group):
    def list(self, only: Literal["all", "background_safe"] = "all") -> Reply[Several[host_records.ToolInfo]]:
        return self._ask_records("host/listTools", "tools", host_records.ToolInfo, filter="" if only == "all" else only)

    def definitions(self) -> Reply[Several[host_records.ToolInfo]]:
        """Names and descriptions alone."""
        return self._ask_records("host/toolDefs", "tools", host_records.ToolInfo)

    def execute(self, name: str, args: Mapping[str, Any] | None = None, *, call_id: str = "") -> Reply[ToolResult]:
        """Run a tool of anybody; it goes through the interceptors, and a tool that fails is a result that says so."""
        params = {"name": name, "args": dict(args or {}), **_given({"callId": call_id})}
        return self._line.ask("host/executeTool", params, lambda result: host_records.build_tool_result(name, result))

    def activate(self, name: str) -> Reply[None]:
        """Let the model see all of a deferred tool."""
        return self._ask_void("host/activateTool", name=name)

    def filter(self, names: Iterable[str] | None) -> Reply[None]:
        """Let the agent have these alone; nothing lets it have all again."""
        return self._line.ask("host/setToolFilter", {"names": None if names is None else [*names]}, lambda _: None)


class Config(Group):
    def get(self, *keys: str) -> Reply[dict[str, Any]]:
        """Settings of the host; unknown ones are not in the answer."""
        empty: dict[str, Any] = {}
        return self._ask_member("host/config.get", "values", empty, keys=list(keys))

    def read(self, name: str) -> Reply[str]:
        """What the person wrote for an extension, in its `<name>.md`."""
        return self._ask_member("host/config.readExtension", "content", "", name=name)


class Credentials(Group):
    def key(self, provider: str) -> Reply[str]:
        """A provider's key; empty when there is none, or none for this extension."""
        return self._ask_member("host/auth.getKey", "key", "", provider=provider)


class Conversation(Group):
    """The conversation as the agent has it in memory; messages are as they come (spec piglet 6.2)."""

    def messages(self) -> Reply[list[dict[str, Any]]]:
        empty: list[dict[str, Any]] = []
        return self._ask_member("host/conversationMessages", "messages", empty)

    def replace(self, messages: Sequence[Message] | None) -> Reply[None]:
        """With these, each `{"type": …, "data": …}`; nothing clears it."""
        given = None if messages is None else [dict(message) for message in messages]
        return self._line.ask("host/setConversationMessages", {"messages": given}, lambda _: None)

    def snapshot(self) -> Reply[host_records.Snapshot]:
        def build_snapshot(result: Any) -> host_records.Snapshot:
            snapshot = host_records.build_record(host_records.Snapshot, result)
            return snapshot._replace(tools=tuple(host_records.build_records(host_records.ToolInfo, list(snapshot.tools))))

        return self._line.ask("host/llmSnapshot", {}, build_snapshot)

    def last_text(self) -> Reply[str]:
        """Of the assistant."""
        return self._ask_member("host/lastAssistantText", "text", "")

    def stats(self) -> Reply[host_records.Stats]:
        return self._record("host/sessionStats", host_records.Stats)

    def has_compactor(self) -> Reply[bool]:
        return self._ask_member("host/hasCompactor", "present", empty=False)

    def compact(self) -> Reply[host_records.Compacted]:
        return self._record("host/triggerCompact", host_records.Compacted)


class Sessions(Group):
    """The sessions on disk; all but `list` and `load` is about the current one."""

    def list(self) -> Reply[Several[host_records.SessionInfo]]:
        return self._ask_records("host/sessions", "sessions", host_records.SessionInfo)

    def load(self, path: str) -> Reply[None]:
        return self._ask_void("host/loadSession", path=path)

    def fork(self) -> Reply[host_records.Forked]:
        return self._record("host/forkSession", host_records.Forked)

    def title(self) -> Reply[str]:
        return self._ask_member("host/sessionTitle", "title", "")

    def set_title(self, title: str) -> Reply[None]:
        return self._line.ask("host/setSessionTitle", {"title": title}, lambda _: None)

    def append(self, kind: str, data: object) -> Reply[None]:
        """An entry that no model sees, such as `ext:weather:seen`."""
        return self._line.ask("host/appendSessionEntry", {"kind": kind, "data": data}, lambda _: None)

    def append_message(self, role: Literal["user", "assistant"], content: str) -> Reply[None]:
        """A message that is there when the session is loaded again."""
        return self._ask_void("host/appendCustomMessage", role=role, content=content)

    def label(self, entry: str, label: str = "") -> Reply[None]:
        return self._line.ask("host/setLabel", {"targetId": entry, "label": label}, lambda _: None)

    def branch(self, entry: str, summary: str | None = None) -> Reply[None]:
        """Go back to an entry, and on from there; a summary says what is left behind."""
        if summary is None:
            return self._ask_void("host/branchSession", entryId=entry)
        return self._line.ask("host/branchSessionWithSummary", {"entryId": entry, "summary": summary}, lambda _: None)

    def reset(self) -> Reply[None]:
        """Begin anew; what there was stays as a tree of its own."""
        return self._ask_void("host/resetSessionLeaf")

    def entries(self) -> Reply[Several[host_records.EntryInfo]]:
        return self._ask_records("host/sessionEntryInfos", "entries", host_records.EntryInfo)

    def tree(self) -> Reply[Several[host_records.TreeNode]]:
        return self._ask_records("host/sessionFullTree", "nodes", host_records.TreeNode)


class Models(Group):
    def list(self) -> Reply[Several[host_records.ModelInfo]]:
        return self._ask_records("host/availableModels", "models", host_records.ModelInfo)

    def switch(self, model: str, *, persist: bool = False) -> Reply[None]:
        """To `provider/id`; `persist` makes it the default."""
        return self._ask_void("host/switchModel", modelId=model, persistDefault=persist)

    def sync(self) -> Reply[int]:
        return self._ask_member("host/syncModels", "updated", 0)

    def write(self, overrides: Mapping[str, Mapping[str, Any]]) -> Reply[int]:
        """Write the catalogue with these changes: `{"provider/id": {"contextWindow": 16000}}`."""
        given = {name: dict(change) for name, change in overrides.items()}
        return self._line.ask("host/writeModels", {"overrides": given}, lambda result: _number(result, "modelsWritten"))


class Background(Group):
    def run(self, prompt: str) -> Reply[None]:
        return self._ask_void("host/runBackground", prompt=prompt)

    def cancel(self) -> Reply[None]:
        return self._ask_void("host/cancelBackground")

    def is_running(self) -> Reply[bool]:
        return self._ask_member("host/isBackgroundRunning", "running", empty=False)


class Bus(Group):
    def publish(self, topic: str, data: object = None) -> Reply[None]:
        return self._line.ask("host/publish", {"topic": topic, "data": data}, lambda _: None)

    def subscribe(self, topic: str, callback: Callable[[Published], object] | None = None) -> Subscription:
        """Hear what is published under this very topic: in a loop over what this gives, or in a function, one after the other."""
        line, subscription = self._line, Subscription(topic, self._line)
        if callback is not None:
            handler = Handler(callback, f"subscription to {topic}", "message")
            subscription.on_message = lambda: line.deliver(handler, f"handler of {topic}", lambda: subscription.get(0))
        params = {"topic": topic}
        subscription.reply = line.ask("host/subscribe", params, lambda told: subscription.opened(_number(told, "subscriptionId")))
        subscription.reply.when_failed(subscription.failed)
        return subscription


class Extensions(Group):
    """Who else is there, and what they offer."""

    def list(self) -> Reply[Several[host_records.ExtensionInfo]]:
        return self._ask_records("host/extInfos", "extensions", host_records.ExtensionInfo)

    def folder(self) -> Reply[str]:
        """Where the host looks for extensions."""
        return self._ask_member("host/extensionsDir", "path", "")

    def commands(self) -> Reply[Several[host_records.CommandInfo]]:
        return self._ask_records("host/commands", "commands", host_records.CommandInfo)

    def shortcuts(self) -> Reply[dict[str, str]]:
        """Key and description."""

        def read_descriptions(result: Any) -> dict[str, str]:
            found = host_records.fold_keys(result, ("shortcuts",)).get("shortcuts")
            about = found if isinstance(found, dict) else {}
            return {key: host_records.build_record(host_records.CommandInfo, value).description for key, value in about.items()}

        return self._line.ask("host/shortcuts", {}, read_descriptions)

    def prompt_sections(self) -> Reply[Several[host_records.SectionInfo]]:
        return self._ask_records("host/promptSections", "sections", host_records.SectionInfo)


class Undo(Group):
    def snapshots(self) -> Reply[dict[str, int]]:
        """Files that can be had back, with their size."""
        empty: dict[str, int] = {}
        return self._ask_member("host/undoSnapshots", "snapshots", empty)

    def restore(self, path: str) -> Reply[None]:
        return self._ask_void("host/undoRestore", path=path)


class Services(Group):
    """`ext.host`, where the host has services."""

    def __init__(self, line: PendingRequests) -> None:
        super().__init__(line)
        self.tools = Tools(line)
        self.config = Config(line)
        self.credentials = Credentials(line)
        self.conversation = Conversation(line)
        self.sessions = Sessions(line)
        self.models = Models(line)
        self.background = Background(line)
        self.bus = Bus(line)
        self.guests = Extensions(line)
        self.undo = Undo(line)

    # -- models and agents --------------------------------------------------------------------------------------------------------

    def chat(
        self, messages: str | Sequence[Message], *, system: str = "", model: str = "", max_tokens: int = 0
    ) -> Reply[host_records.ChatAnswer]:
        """One call of a model, without tools: a text, or messages `{"role": …, "content": …}`. `small` is a cheap model."""
        said = [{"role": "user", "content": messages}] if isinstance(messages, str) else [dict(one) for one in messages]
        return self._record("host/chat", host_records.ChatAnswer, messages=said, system=system, model=model, maxTokens=max_tokens)

    def agent_run(
        self, task: str, *, system: str = "", tools: str = "background_safe", model: str = "", max_turns: int = 0
    ) -> Reply[host_records.AgentAnswer]:
        """An agent of your own for one task; `tools="all"` gives it what the person's agent has."""
        more = {"tools": "" if tools == "background_safe" else tools, "model": model, "maxTurns": max_turns}
        return self._record("host/agent.run", host_records.AgentAnswer, task=task, system=system, **more)

    # -- people -------------------------------------------------------------------------------------------------------------------

    def ask(self, prompt: str, choices: Sequence[str]) -> Reply[str | None]:
        """One of these, as the person decides; nothing when the person does not."""

        def get_choice(result: Any) -> str | None:
            answer = host_records.fold_keys(result, ("selected", "cancelled"))
            return None if answer.get("cancelled") else str(answer.get("selected", ""))

        return self._line.ask("host/askUser", {"prompt": prompt, "choices": list(choices)}, get_choice)

    def pick(self, title: str, items: Iterable[str | tuple[str, ...]]) -> Reply[str | None]:
        """The id of one of many: each a text, or id and label, or id, label and description. Nothing when the person leaves."""
        shown = [_build_item(one) for one in items]
        picked = lambda result: str(host_records.fold_keys(result, ("selected",)).get("selected") or "") or None  # noqa: E731
        return self._line.ask("host/showPicker", {"title": title, "items": shown}, picked)

    # -- the run ------------------------------------------------------------------------------------------------------------------

    def wait_for_idle(self) -> Reply[None]:
        return self._ask_void("host/waitForIdle")

    def toggle_step_mode(self) -> Reply[bool]:
        return self._ask_member("host/toggleStepMode", "on", empty=False)

    def quit(self) -> Reply[None]:
        return self._ask_void("host/requestQuit")

    def abort(self) -> Reply[None]:
        """End the run, and know that it has been told to."""
        return self._ask_void("host/abort")

    # -- what is told and not answered (spec piglet 7.2) --------------------------------------------------------------------------

    def abort_now(self, reason: str = "") -> None:
        """End the run; a reason is kept in the conversation."""
        if reason:
            self._line.notify_host("abortWithMarker", {"reason": reason})
        else:
            self._line.notify_host("abort", {})

    def send_message(self, content: str) -> None:
        """As if the person had typed it."""
        self._line.notify_host("sendMessage", {"content": content})

    def steer(self, content: str) -> None:
        """A word to the agent while it works."""
        self._line.notify_host("steer", {"content": content})

    def show_message(self, text: str) -> None:
        """For the person; no model sees it."""
        self._line.notify_host("showMessage", {"text": text})

    def notify(self, message: str, level: str = "info") -> None:
        self._line.notify_host("notify", {"message": message, "level": level})

    def log(self, level: str, message: str) -> None:
        """Into the host's log: debug, info, warn or error."""
        self._line.notify_host("log", {"level": level, "message": message})

    def set_input_text(self, text: str) -> None:
        self._line.notify_host("setInputText", {"text": text})

    def set_widget(self, key: str, content: str, placement: Placement = "above-input") -> None:
        """A line that stays; empty content takes it away."""
        self._line.notify_host("setWidget", {"key": key, "placement": placement, "content": content})

    def show_overlay(self, key: str, content: str, *, title: str = "", anchor: str = "", width: str = "") -> None:
        more = _given({"title": title, "anchor": anchor, "width": width})
        self._line.notify_host("showOverlay", {"key": key, "content": content, **more})

    def close_overlay(self, key: str) -> None:
        self._line.notify_host("closeOverlay", {"key": key})


def _given(params: dict[str, Any]) -> dict[str, Any]:
    """What is unset is left out; the host fills it in (spec piglet 7.1)."""
    return {key: value for key, value in params.items() if value or isinstance(value, list)}


def _number(result: Any, key: str) -> int:
    value = host_records.fold_keys(result, (key,)).get(key)
    return int(value) if isinstance(value, int | float) else 0


def _build_item(one: str | tuple[str, ...]) -> dict[str, str]:
    parts = (one, one) if isinstance(one, str) else one
    if len(parts) not in (2, 3) or not all(isinstance(part, str) for part in parts):
        raise TypeError(f"an item to pick is a text, or (id, label), or (id, label, description), not {one!r}")
    return dict(zip(("id", "label", "desc"), parts, strict=False))
