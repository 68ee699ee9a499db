"""A guest that streams models: whoever wants an answer gets it from there (spec piglet 5.9)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from serai.app.app import App
from serai.errors import BadSettings, ModelFailed, SeraiError
from serai.model.contributions import Compactor, Contributions, Provider
from serai.model.events import Compacted, Event, Retrying, Usage
from serai.model.provider import Chunk, Completion, ModelMessage, ModelRequest
from serai.model.tools import TextBlock
from tests.support.agents.scripted_models import Answer, Answers, call, conversation, reply, texts
from tests.support.app.apps import Person, bring, create_app, open_app
from tests.support.host.fake_guests import Fake

Monkey = pytest.MonkeyPatch
SELECTION = pytest.mark.req("piglet.rule.provider-selection")
MODELS = """
[[models]]
id = "m1"
provider = "acme"
api = "acme-api"
[[models]]
id = "m2"
provider = "acme"
api = "other-api"
base_url = "http://127.0.0.1:9/v1"
"""


class Streamer(Fake):
    """Streams the models of an API with prepared answers."""

    def __init__(self, *answers: Answer, api: str = "acme-api", name: str = "streamer", **offers: Any) -> None:
        super().__init__(name, Contributions(providers=(Provider(api),), **offers))
        self.model = Answers(*(answers or ([reply("streamed")],)))
        self.apis: list[str] = []

    def stream(self, api: str, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        self.apis.append(api)
        return self.model.stream(request)


def write_models(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "models.toml").write_text(MODELS)


async def ask(app: App, group: str, what: str, **arguments: Any) -> Any:
    return await app.runtime.services.ask("fake:streamer", group, what, arguments)


@SELECTION
async def test_the_main_agent_work_on_the_side_and_other_guests_get_their_answers_from_it(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    write_models(tmp_path)
    guest = Streamer([reply("main")], [reply("side")], [reply("chat")], [reply("run", usage=Usage(7, 2))])
    bring(monkeypatch, tmp_path, guest)
    async with open_app(tmp_path, model="acme/m1") as app:
        result = await app.submit("hello")
        assert result is not None
        assert result.text == "main"
        key = app.resident.backgrounds.start("look")
        assert (await app.resident.backgrounds.result(key)).endswith("side")
        chat = await ask(app, "chat", "chat", messages=[{"content": "hi"}], model="acme/m1")
        assert chat["text"] == "chat"
        run = await ask(app, "chat", "run", task="count", model="acme/m1")
        assert (run["text"], run["usage"]) == ("run", {"input": 7, "output": 2})
    assert guest.apis == ["acme-api"] * 4
    assert {request.model.key for request in guest.model.requests} == {"acme/m1"}


async def test_also_a_standard_api_is_its_own_without_a_key_of_ours(monkeypatch: Monkey, tmp_path: Path) -> None:
    guest = Streamer(api="anthropic")
    bring(monkeypatch, tmp_path, guest)
    async with open_app(tmp_path, model="claude") as app:
        result = await app.submit("hello")
        assert result is not None
        assert result.text == "streamed"
        assert app.resident.context.model.api == "anthropic"
    assert guest.apis == ["anthropic"]


async def test_without_such_a_guest_what_is_missing_is_told_before_the_first_turn_and_nothing_is_left(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    write_models(tmp_path)
    bring(monkeypatch, tmp_path, Streamer())
    app = create_app(tmp_path, model="claude")
    with pytest.raises(ModelFailed, match="there is no key for it") as raised:
        await app.open()
    assert raised.value.hint == "set ANTHROPIC_API_KEY"
    assert list((tmp_path / "home").glob("sessions/*.jsonl")) == []
    bring(monkeypatch, tmp_path)
    with pytest.raises(BadSettings, match="no address"):
        await create_app(tmp_path, model="acme/m1").open()


@SELECTION
async def test_who_switches_is_told_what_is_missing_at_once(monkeypatch: Monkey, tmp_path: Path) -> None:
    write_models(tmp_path)
    guest = Streamer()
    bring(monkeypatch, tmp_path, guest)
    async with open_app(tmp_path) as app:
        with pytest.raises(ModelFailed, match="no key"):
            await app.session.set_model("claude")
        with pytest.raises(ModelFailed, match="no key"):
            await ask(app, "chat", "chat", messages=[{"content": "hi"}], model="claude")
        assert app.resident.context.model.key == "parrot/parrot"
        await app.session.set_model("acme/m1")
        result = await app.submit("hello")
        assert result is not None
        assert result.text == "streamed"


async def test_a_model_of_an_api_that_nobody_registered_is_asked_as_a_compatible_one(monkeypatch: Monkey, tmp_path: Path) -> None:
    write_models(tmp_path)
    bring(monkeypatch, tmp_path, Streamer())
    async with open_app(tmp_path, model="acme/m2", limits={"model_attempts": 1}) as app:
        with pytest.raises(ModelFailed, match="acme/m2"):  # nobody listens there
            await app.submit("hello")


async def test_who_streams_shows_at_each_call(monkeypatch: Monkey, tmp_path: Path) -> None:
    guest = Streamer(api="parrot")
    bring(monkeypatch, tmp_path, guest)
    async with open_app(tmp_path, model="parrot") as app:
        answers = []
        for _ in range(2):
            result = await app.submit("hello")
            assert result is not None
            answers.append(result.text)
            guest.contributions = Contributions()
            assert guest.taking is not None
            guest.taking.listener.on_change()
    assert answers == ["streamed", "You said: hello"]


@pytest.mark.req("piglet.rule.provider-failure")
@pytest.mark.parametrize("why", ["extension streamer crashed", "provider stream: no", "its message cannot be read"])
async def test_what_goes_wrong_there_goes_through_the_agents_retries(monkeypatch: Monkey, tmp_path: Path, why: str) -> None:
    write_models(tmp_path)
    failure = ModelFailed(why, who="acme/m1", temporary=True)
    guest = Streamer([Chunk("half"), failure], [failure], [reply("at last")])
    bring(monkeypatch, tmp_path, guest)
    person = Person()
    async with open_app(tmp_path, model="acme/m1", surface=person) as app:
        result = await app.submit("hello")
        assert result is not None
        assert result.text == "at last"
        assert [one.error for one in person.events if isinstance(one, Retrying)] == [f"acme/m1: {why}"] * 2
        guest.model.answers = [[failure]]
        with pytest.raises(ModelFailed, match=why):
            await app.submit("again")
        assert len(guest.model.requests) == 6
        assert texts(conversation(app.session))[-1] == "user: again"


@pytest.mark.req("piglet.rule.provider-failure")
async def test_one_that_is_down_is_tried_again_too(monkeypatch: Monkey, tmp_path: Path) -> None:
    write_models(tmp_path)
    guest = Streamer()
    bring(monkeypatch, tmp_path, guest)
    person = Person()
    async with open_app(tmp_path, model="acme/m1", surface=person, limits={"restart_wait": 60.0, "restart_wait_most": 60.0}) as app:
        guest.die()
        with pytest.raises(SeraiError):
            await app.submit("hello")
        assert len(person.events_of(Retrying)) == 2


# -- compaction


class Shortens(Streamer):
    def __init__(self, *answers: Answer, threshold: int) -> None:
        super().__init__(*answers, compactors=(Compactor("digest", threshold),))
        self.given: list[int] = []

    async def compact(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        self.given.append(len(messages))
        return [ModelMessage("user", (TextBlock("in short"),))]


@pytest.mark.req("piglet.rule.compact-auto")
@pytest.mark.parametrize(
    ("threshold", "setting", "asked"), [(100, 0, [8]), (0, 100, [8]), (0, 0, []), (101, 50, []), (50, 500, [8])]
)
async def test_the_threshold_is_the_compactors_else_the_persons(
    monkeypatch: Monkey, tmp_path: Path, threshold: int, setting: int, asked: list[int]
) -> None:
    write_models(tmp_path)
    (tmp_path / "home" / "config.toml").write_text(f"compact_at = {setting}\n")
    guest = Shortens([reply("ok", usage=Usage(100, 1))], threshold=threshold)
    bring(monkeypatch, tmp_path, guest)
    heard: list[Event] = []
    async with open_app(tmp_path, model="acme/m1") as app:
        app.session.listen(heard.append)
        for number in range(4):
            await app.submit(f"prompt {number}")
        await app.resident.compaction.wait_finished()
        assert guest.given == asked
        assert await ask(app, "config", "get", keys=["agent.compactAt"]) == {"values": {"agent.compactAt": setting}}
        assert app.runtime.current is not None
        assert len(app.runtime.current.session.read_messages()) == len(conversation(app.session)) == (1 if asked else 8)
        assert [(one.before, one.after) for one in heard if isinstance(one, Compacted)] == ([(8, 1)] if asked else [])


@pytest.mark.req("piglet.fix.30")
async def test_a_guest_may_have_it_shortened_by_the_one_that_is_registered(monkeypatch: Monkey, tmp_path: Path) -> None:
    write_models(tmp_path)
    guest = Shortens([reply("", call("read", path="a"))], [reply("ok")], threshold=0)
    bring(monkeypatch, tmp_path, guest)
    async with open_app(tmp_path, model="acme/m1") as app:
        await app.submit("hello")
        assert await ask(app, "control", "compact", registered=True) == {"before": 4, "after": 1}
        assert app.runtime.current is not None
        stored = app.runtime.current.session
        assert [entry.type for entry in stored.read_path() if entry.type != "event"][-1] == "compact"
