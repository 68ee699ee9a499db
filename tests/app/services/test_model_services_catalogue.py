"""Models for guests, and the files of a person that they may change."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.agents.models import catalogue
from serai.agents.models.catalogue import Catalogue, Override
from serai.app.services.model_services import ModelService
from serai.app.settings_writer import set_toml_value, write_model_overrides
from serai.errors import BadRequest, BadSettings, NoModel, NotWritten
from serai.model.actions import Action, SetStatus
from serai.testing.models.server import FakeModels
from tests.support.app.apps import open_app
from tests.support.app.service_requests import EVERYTHING, GUEST, ServiceCaller
from tests.support.profiles import examples

MINE = """\
# my own models

[[models]]
id = "m1"
name = "M One"
provider = "acme"
context_window = 8000
headers = { "X-Key" = "sk-secret" }  # do not lose this
"""


class Harness:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.current = "acme/m1"
        self.shown: list[Action] = []
        self.environ = {"SERAI_HOME": str(home)}
        self.ask = ServiceCaller(ModelService(self.environ, lambda: self.current, self.switch, self.shown.append))

    async def switch(self, query: str) -> str:
        self.current = query
        return query

    @property
    def config(self) -> Path:
        return self.home / "config.toml"

    @property
    def models(self) -> Path:
        return self.home / "models.toml"


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path)
    harness.models.write_text(MINE)
    return harness


async def test_models_are_listed_by_provider_and_the_one_in_use_is_marked(harness: Harness) -> None:
    models = (await harness.ask("list"))["models"]
    assert [(model["provider"], model["id"]) for model in models] == sorted((model["provider"], model["id"]) for model in models)
    assert [model for model in models if model["current"]] == [
        {"id": "m1", "api": "openai", "display_name": "acme/M One", "provider": "acme", "context_window": 8000, "current": True}
    ]
    assert "sk-secret" not in repr(models)


async def test_another_model_is_taken_and_shown(harness: Harness) -> None:
    assert await harness.ask("switch", model="PARROT/parrot") == {}
    assert harness.current == "parrot/parrot"
    assert harness.shown == [SetStatus("model", f"parrot/{Catalogue.load_built_in().get('parrot/parrot').name}")]  # type: ignore[union-attr]
    assert not harness.config.exists()


async def test_only_an_exact_name_switches(harness: Harness) -> None:
    with pytest.raises(BadRequest, match="the model is required"):
        await harness.ask("switch", model="")
    for name in ("m1", "acme/m", "acme/m2"):
        with pytest.raises(NoModel, match=f"unknown model: {name}"):
            await harness.ask("switch", model=name)
    assert harness.current == "acme/m1"


async def test_a_model_that_shall_stay_is_written_down(harness: Harness) -> None:
    harness.config.write_text("# mine\nrecord = false\n\n[limits]\nsteps = 3\n")
    await harness.ask("switch", model="parrot/parrot", persist=True)
    assert harness.config.read_text() == 'default_model = "parrot/parrot"\n# mine\nrecord = false\n\n[limits]\nsteps = 3\n'
    await harness.ask("switch", model="acme/m1", persist=True)
    assert harness.config.read_text() == 'default_model = "acme/m1"\n# mine\nrecord = false\n\n[limits]\nsteps = 3\n'


async def test_sync_counts_what_there_is(harness: Harness) -> None:
    before = (await harness.ask("sync"))["updated"]
    harness.models.write_text(MINE + '[[models]]\nid = "m2"\nprovider = "acme"\n')
    assert (await harness.ask("sync"))["updated"] == before + 1


@pytest.mark.req("piglet.method.host/syncModels")
async def test_sync_asks_the_servers_of_this_machine_and_counts_what_they_have(tmp_path: Path) -> None:
    async with FakeModels() as server:
        home = tmp_path / "home"
        home.mkdir()
        (home / "models.toml").write_text(f'[[models]]\nid = "m1"\nprovider = "here"\nbase_url = "{server.url}/v1"\n')
        async with open_app(tmp_path) as app:
            app.runtime.services.granted = lambda _: EVERYTHING
            ask = app.runtime.services.ask
            before = len((await ask(GUEST, "models", "list", {}))["models"])
            assert await ask(GUEST, "models", "sync", {}) == {"updated": before + 2}
            listed = [model["id"] for model in (await ask(GUEST, "models", "list", {}))["models"] if model["provider"] == "here"]
            assert listed == ["fake-1", "fake-small-1", "m1"]
            await ask(GUEST, "models", "switch", {"model": "here/fake-small-1"})
            assert app.resident.context.model.key == "here/fake-small-1"


@pytest.mark.req("app.services.files")
async def test_what_is_known_of_models_is_changed_and_what_the_person_wrote_stays(harness: Harness) -> None:
    overrides: dict[str, Any] = {"acme/m1": {"context_window": 16000.0, "name": ""}, "parrot/parrot": {"max_tokens": 5}}
    assert await harness.ask("write", overrides=overrides) == {"models_written": 2}
    assert harness.models.read_text().startswith(MINE)
    found = Catalogue.load(harness.environ)
    mine, parrot = found.get("acme/m1"), found.get("parrot/parrot")
    assert mine is not None
    assert parrot is not None
    assert (mine.name, mine.context_window, mine.headers) == ("M One", 16000, {"X-Key": "sk-secret"})
    assert parrot.max_tokens == 5
    await harness.ask("write", overrides={"ACME/m1": {"max_tokens": 100}})
    assert harness.models.read_text().count("[[models]]") == 1
    assert harness.models.read_text().count("[[override]]") == 2
    again = Catalogue.load(harness.environ).get("acme/m1")
    assert again is not None
    assert (again.context_window, again.max_tokens) == (16000, 100)


@pytest.mark.req("app.services.files")
async def test_what_the_person_says_later_of_a_model_counts_also_after_a_guest_changed_something(harness: Harness) -> None:
    await harness.ask("write", overrides={"acme/m1": {"context_window": 16000}})
    later = (
        harness.models.read_text()
        .replace("sk-secret", "sk-new")
        .replace('id = "m1"', 'id = "m1"\nbase_url = "http://localhost:1/v1"')
    )
    harness.models.write_text(later)
    found = Catalogue.load(harness.environ).get("acme/m1")
    assert found is not None
    assert (found.headers, found.base_url, found.context_window) == ({"X-Key": "sk-new"}, "http://localhost:1/v1", 16000)
    assert "sk-new" not in harness.models.read_text().partition("written for a guest")[2]


@pytest.mark.req("app.services.files")
async def test_what_stands_below_a_guests_part_stays_too(harness: Harness) -> None:
    await harness.ask("write", overrides={"acme/m1": {"max_tokens": 5}})
    mine = harness.models.read_text() + '\n[[models]]\nid = "m2"  # added at the end\nprovider = "acme"\n'
    harness.models.write_text(mine)
    assert await harness.ask("write", overrides={"acme/m2": {"max_tokens": 6}, "acme/m1": {"name": "One"}}) == {"models_written": 2}
    assert harness.models.read_text().startswith(mine)
    found = {model.key: (model.name, model.max_tokens) for model in Catalogue.load(harness.environ)}
    assert (found["acme/m1"], found["acme/m2"]) == (("One", 5), ("m2", 6))


@pytest.mark.req("app.services.files")
@pytest.mark.parametrize("change", [{"name": "z" * 201}, {"context_window": -1}, {"max_tokens": 10**30}])
async def test_what_no_model_can_have_is_refused(harness: Harness, change: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=next(iter(change))):
        await harness.ask("write", overrides={"acme/m1": change})
    assert harness.models.read_text() == MINE


@pytest.mark.req("app.services.files")
async def test_a_file_never_grows_longer_than_can_be_read_again(harness: Harness) -> None:
    harness.models.write_text(full := MINE + "#" * (1024 * 1024 - len(MINE) - 50) + "\n")
    with pytest.raises(NotWritten, match="it is longer than 1048576 bytes"):
        await harness.ask("write", overrides={"acme/m1": {"name": "One"}})
    assert harness.models.read_text() == full
    assert Catalogue.load(harness.environ).get("acme/m1") is not None


@pytest.mark.req("app.services.files")
async def test_a_model_that_nobody_knows_changes_nothing(harness: Harness) -> None:
    with pytest.raises(NoModel, match="unknown model: gone/gone"):
        await harness.ask("write", overrides={"acme/m1": {"max_tokens": 1}, "gone/gone": {}})
    assert harness.models.read_text() == MINE


@pytest.mark.req("app.services.files")
def test_a_file_to_which_nothing_can_be_added_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(old := 'override = [{ key = "acme/m1", name = "M" }]\n')
    with pytest.raises(NotWritten, match="nothing can be added to it"):
        write_model_overrides(str(file), [Override("acme/m1", "Other")])
    assert file.read_text() == old


@pytest.mark.parametrize(
    ("name", "now", "earlier"),
    [("M\u00a01", "\\u00A0", "\u00a0"), ("M\x1b1", "\\u001B", "\\u001b")],
    ids=["as it is", "in small letters"],
)
def test_a_section_of_an_earlier_version_is_written_anew(tmp_path: Path, name: str, now: str, earlier: str) -> None:
    """It has characters as they are, or in small letters, that are written as escapes in capital letters today."""
    file = tmp_path / "models.toml"
    write_model_overrides(str(file), [Override("acme/m1", name), Override("acme/m2", "M 2")])
    assert now in file.read_text()
    file.write_text(file.read_text().replace(now, earlier))
    write_model_overrides(str(file), [Override("acme/m1", "Other")])
    assert file.read_text().count("written for a guest") == 1
    assert earlier not in file.read_text()


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
OVERRIDES = st.builds(Override, TEXTS, TEXTS, st.integers(0, 10**9), st.integers(0, 10**9))


@settings(deadline=None, max_examples=examples(25))  # each is synced to the disk
@given(st.lists(OVERRIDES, max_size=3), st.lists(OVERRIDES, max_size=3))
def test_every_override_can_be_written_down_and_read_again(
    tmp_path_factory: pytest.TempPathFactory, first: list[Override], later: list[Override]
) -> None:
    file = tmp_path_factory.mktemp("models") / "models.toml"
    write_model_overrides(str(file), first)
    wanted = catalogue.merge_overrides([*first, *later])
    assert write_model_overrides(str(file), later) == len(wanted)
    assert catalogue.merge_overrides(catalogue.parse_catalogue(file.read_text(), who="models.toml").overrides) == wanted
    assert file.read_text().count("written for a guest") == 1


# -- one line of a person's file --------------------------------------------------------------------------------------------------


@pytest.mark.req("app.services.files")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", 'key = "new"\n'),
        ('key = "old"', 'key = "new"'),
        ("key='old' # why\r\nother = 1\r\n", 'key="new" # why\r\nother = 1\r\n'),
        ('"key" = "o\\"ld"\n', '"key" = "new"\n'),
        ('# key = "not this"\nkey = "old"\n', '# key = "not this"\nkey = "new"\n'),
        ('[table]\nkey = "another"\n', 'key = "new"\n[table]\nkey = "another"\n'),
        ('text = """\nkey = "in a text"\n"""\nkey = "old"\n', 'text = """\nkey = "in a text"\n"""\nkey = "new"\n'),
        ('key = "old"\n[table]\nkey = "another"\n', 'key = "new"\n[table]\nkey = "another"\n'),
        ('list = [\n  1,\n]\n  key = "old"\n', 'list = [\n  1,\n]\n  key = "new"\n'),
    ],
)
def test_only_the_value_changes(tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(old.encode())
    set_toml_value(str(file), "key", "new")
    assert file.read_bytes().decode() == new


@pytest.mark.parametrize("value", ['a"b', "a\\b", "é\U0001f600", "a\nb\tc", "\x01\x1f\x7f"])
def test_every_text_can_be_a_value(tmp_path: Path, value: str) -> None:
    file = tmp_path / "config.toml"
    set_toml_value(str(file), "key", value)
    set_toml_value(str(file), "key", value + "!")
    assert tomllib.loads(file.read_text()) == {"key": value + "!"}
    assert file.read_text().count("\n") == 1


@pytest.mark.req("app.services.files")
@pytest.mark.parametrize("old", ['key = """\nold"""\n', "key = 7\n", "key.more = 1\n", "[key]\nmore = 1\n"])
def test_what_cannot_be_changed_by_a_line_is_left_alone(tmp_path: Path, old: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(old)
    with pytest.raises(NotWritten) as error:
        set_toml_value(str(file), "key", "new")
    assert error.value.hint == 'write key = "new" yourself'
    assert file.read_text() == old


@pytest.mark.req("app.services.files")
def test_a_file_that_is_no_toml_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("key = \n")
    with pytest.raises(BadSettings):
        set_toml_value(str(file), "key", "new")
    assert file.read_text() == "key = \n"


def test_a_link_stays_a_link_and_a_mode_stays_a_mode(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "serai.toml"
    real.parent.mkdir()
    real.write_text("record = false\n")
    real.chmod(0o640)
    link = tmp_path / "config.toml"
    link.symlink_to(real)
    set_toml_value(str(link), "key", "new")
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert tomllib.loads(real.read_text()) == {"record": False, "key": "new"}
    fresh = tmp_path / "new" / "config.toml"
    set_toml_value(str(fresh), "key", "new")
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o600
    assert os.listdir(fresh.parent) == ["config.toml"]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((NotWritten, BadSettings)):
        set_toml_value(str(tmp_path / "file" / "config.toml"), "key", "new")
