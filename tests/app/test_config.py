"""What is set, where it comes from, and that a project which is not trusted only narrows."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from serai import paths
from serai.agents.factory import AgentSettings, read_agent_settings
from serai.app.config import LOWERED, PROJECT_MAY, Config, ConfigValue
from serai.errors import BadSettings
from serai.host.discovery import find_guests
from serai.host.guest_settings import GROUPS, PROJECT, _Entry, read_person_settings
from serai.host.trust import Trust
from serai.limits import Limits
from tests.support.host.guest_folders import write_zot_guest


class Harness:
    """A person's home and a project, both empty at first, and a configuration of them."""

    def __init__(self, root: Path) -> None:
        self.home, self.project = root / "home", root / "project"
        self.home.mkdir()
        (self.project / ".serai").mkdir(parents=True)
        self.environ = {"SERAI_HOME": str(self.home)}

    @property
    def trust(self) -> Trust:
        return Trust.usual(self.environ)

    @property
    def mine(self) -> Path:
        return self.home / "config.toml"

    @property
    def theirs(self) -> Path:
        return self.project / ".serai" / "config.toml"

    def load(self, theirs: str = "", mine: str = "", *, flags: dict[str, object] | None = None, **environ: str) -> Config:
        self.mine.write_text(mine)
        self.theirs.write_text(theirs)
        return Config.load(self.project, environ=self.environ | environ, flags=flags or {})

    def trusted(self, theirs: str = "", mine: str = "", **more: Any) -> Config:
        self.theirs.write_text(theirs)
        self.mine.write_text(mine)
        self.trust.allow(self.project)
        return self.load(theirs, mine, **more)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def value(config: Config, key: str) -> ConfigValue:
    [found] = [one for one in config.values if one.key == key]
    return found


# -- where values come from -------------------------------------------------------------------------------------------------------


@pytest.mark.req("app.config.sources")
def test_without_any_file_all_is_as_it_is_shipped(harness: Harness) -> None:
    config = Config.load(harness.project, environ=harness.environ)
    assert (config.agent, config.model, config.small_model, config.record, config.tools) == ("resident", "", "", True, None)
    assert (config.settings, config.limits, config.notes) == ({}, Limits(), ())
    assert {one.source for one in config.values if one.key != "home"} == {"default"}
    assert value(config, "home") == ConfigValue("home", str(harness.home), "environment", "SERAI_HOME")
    assert config.files == (str(harness.mine), str(harness.theirs))
    keys = [one.key for one in config.values]
    assert len(keys) == len(set(keys))
    assert {f"limits.{item.name}" for item in fields(Limits)} < set(keys)


@pytest.mark.req("app.config.sources")
def test_each_value_says_where_it_comes_from_and_the_strongest_counts(harness: Harness) -> None:
    mine = 'default_model = "mine"\nagent = "mine"\nsmall_model = "mine"\nrecord = false\nsystem_prompt = "mine"\n'
    theirs = 'default_model = "theirs"\nagent = "theirs"\nsystem_prompt = "theirs"\n'
    config = harness.trusted(theirs, mine, flags={"agent": "flag"}, SERAI_DEFAULT_MODEL="variable", NO_COLOR="1")
    assert value(config, "record") == ConfigValue("record", False, "person", str(harness.mine))
    assert value(config, "small_model") == ConfigValue("small_model", "mine", "person", str(harness.mine))
    assert value(config, "system_prompt") == ConfigValue("system_prompt", "theirs", "project", str(harness.theirs))
    assert value(config, "default_model") == ConfigValue("default_model", "variable", "environment", "SERAI_DEFAULT_MODEL")
    assert value(config, "agent") == ConfigValue("agent", "flag", "flag")
    assert value(config, "no_color") == ConfigValue("no_color", True, "environment", "NO_COLOR")
    assert (config.agent, config.model, config.small_model, config.record) == ("flag", "variable", "mine", False)
    assert config.settings["system_prompt"] == "theirs"
    assert config.settings["default_model"] == "theirs"  # whoever resolves a model looks at the variables first
    assert config.notes == ()


def test_a_variable_that_is_empty_says_nothing_and_piglets_are_known(harness: Harness) -> None:
    config = harness.load(mine='small_model = "mine"', SERAI_DEFAULT_MODEL=" ", PIGLET_DEFAULT_MODEL="p", SERAI_SMALL_MODEL="")
    assert (config.model, config.small_model) == ("p", "mine")
    assert value(config, "default_model").file == "PIGLET_DEFAULT_MODEL"


@pytest.mark.req("app.config.sources")
def test_flags_are_a_persons_own_act_and_stronger_than_a_project(harness: Harness) -> None:
    theirs = 'tools = ["read"]\n[limits]\nsteps = 3\ntool = 5\n'
    config = harness.load(
        theirs, flags={"tools": ["bash"], "default_model": "m", "limits": {"steps": 9, "tool": None}, "agent": ""}
    )
    assert (config.tools, config.model, config.agent) == (("bash",), "m", "resident")
    assert (config.limits.steps, config.limits.tool) == (9, None)
    assert config.settings["limits"] == {"steps": 9, "tool": "none"}
    assert PROJECT not in config.settings
    assert value(config, "limits.steps").source == "flag"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"agnet": "x"}, "there is no flag 'agnet'"),
        ({"limits": {"stpes": 1}}, "there is no limit stpes"),
        ({"record": 1}, "record"),
    ],
)
def test_a_flag_that_cannot_be_is_an_error(harness: Harness, flags: dict[str, object], reason: str) -> None:
    with pytest.raises(BadSettings, match=reason) as raised:
        harness.load(flags=flags)
    assert raised.value.who == "the command line"


def test_again_reads_everything_anew(harness: Harness) -> None:
    config = harness.load(mine='agent = "one"', flags={"default_model": "m"})
    harness.mine.write_text('agent = "two"')
    assert config.agent == "one"
    again = config.reload()
    assert (again.agent, again.model) == ("two", "m")


def test_a_prompt_of_the_persons_own_comes_first_and_that_is_noted(harness: Harness) -> None:
    (harness.home / "prompt.md").touch()
    assert value(harness.load(mine='system_prompt = "x"'), "system_prompt").note == f"{harness.home / 'prompt.md'} comes first"


@pytest.mark.req("app.config.masked")
def test_no_value_is_in_a_repr(harness: Harness) -> None:
    config = harness.load('default_model = "s3cret-two"', 'system_prompt = "s3cret"', SERAI_SMALL_MODEL="s3cret")
    assert "s3cret" not in repr(config.values)
    assert "system_prompt" in repr(config.values)
    assert "s3cret-two" not in repr(config)


# -- what a project may say -------------------------------------------------------------------------------------------------------


@pytest.mark.req("app.config.table")
def test_there_is_a_row_for_every_setting() -> None:
    tables = {"guests": "guests.*", "boxes": "boxes.*", "limits": "limits.*", "plugins": "plugins.*"}
    tables["feature"] = "feature.*.enabled"
    top = {tables.get(key, key) for key in paths._KEYS if key not in ("agents", "guest")}
    top |= {f"agents.*.{name}" for name in AgentSettings.__struct_fields__}
    guest = {f"guest.*.{name}" + (".*" if name == "limits" else "") for name in _Entry.__struct_fields__}
    assert set(PROJECT_MAY) == top | guest
    assert {item.name for item in fields(Limits)} > LOWERED


TRUSTED = {
    "agent": '"x"',
    "agents.*.model": '"x"',
    "agents.*.effort": '"high"',
    "default_model": '"x"',
    "small_model": '"x"',
    "system_prompt": '"x"',
    "prompt_order": "{ x = 1 }",
    "compact_at": "1000",
    "guest.*.env": '["X"]',
    "guest.*.replace": '["x"]',
    "guest.*.keys": '["x"]',
    "guest.*.exclusive": "true",
    "guest.*.watch": "false",
    "plugins.*": '[{ id = "project:echo" }]',
}


def test_all_that_needs_trust_is_tried_here() -> None:
    assert set(TRUSTED) == {key for key, may in PROJECT_MAY.items() if may.when == "trusted"}


@pytest.mark.req("app.config.narrow")
@pytest.mark.parametrize("pattern", TRUSTED)
def test_what_needs_trust_counts_only_then_and_is_noted_until_then(harness: Harness, pattern: str) -> None:
    key = pattern.replace("*", {"agents": "claude", "plugins": "enabled"}.get(pattern.partition(".")[0], "gate"))
    text = f"{key} = {TRUSTED[pattern]}\n"
    before = harness.load(text)
    assert before.settings == {}
    reason = "they were never trusted; look at them, then `serai trust`"
    assert before.notes == (f"{harness.theirs}: {key} does not count: {reason}",)
    after = harness.trusted(text)
    assert value(after, key).source == "project"
    assert (after.notes, after.settings != {}) == ((), True)
    changed = harness.load(text + "# more")
    assert changed.settings == {}
    assert "they have changed since they were trusted" in changed.notes[0]


@pytest.mark.req("app.config.narrow")
@pytest.mark.parametrize(
    "text",
    [
        "record = false",
        "guests.homes = true",
        'boxes.hooks = ["./x"]',
        "boxes.max_boxes = 1",
        "boxes.__proto__ = 1",
        'agents.claude.path = "/bin/x"',
        'agents.claude.permission_mode = "bypassPermissions"',
        'agents.claude.allowed_tools = ["Bash"]',
        "agents.claude.hooks = true",
        'agents.claude.env = ["AWS_SECRET_ACCESS_KEY"]',
        "feature.plugins.enabled = true",
    ],
)
def test_what_is_never_a_projects_to_say_is_noted_even_when_it_is_trusted(harness: Harness, text: str) -> None:
    for config in (harness.load(text), harness.trusted(text)):
        assert config.settings == {}
        assert config.record
        [note] = config.notes
        assert note.startswith(f"{harness.theirs}: {text.partition(' ')[0]} does not count: ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("agents.cluade.path = '/x'", "cluade"),
        ("agents.claude.paht = '/x'", "paht"),
        ("agents.claude.path = 1", "agents"),
        ("agents.claude.path = 'bin/x'", "agents.claude.path: it is not an absolute path"),
        ("agents.claude = 1", "agents"),
    ],
)
def test_what_is_set_for_an_agent_is_checked(harness: Harness, text: str, reason: str) -> None:
    with pytest.raises(BadSettings, match=reason) as raised:
        harness.load(mine=text)
    assert raised.value.who == str(harness.mine)


def test_what_a_person_sets_for_an_agent_is_there(harness: Harness) -> None:
    mine = '[agents.claude]\nmodel = "m"\npermission_mode = "plan"\nallowed_tools = ["Bash"]\nenv = ["SSH_AUTH_SOCK"]'
    assert read_agent_settings(harness.load(mine=mine).settings).claude == AgentSettings(
        model="m", permission_mode="plan", allowed_tools=("Bash",), env=("SSH_AUTH_SOCK",)
    )


def test_the_path_of_an_agent_is_the_persons_to_say(harness: Harness) -> None:
    config = harness.load(mine='[agents.claude]\npath = "~/bin/claude"')
    assert config.settings["agents"] == {"claude": {"path": "~/bin/claude"}}
    assert value(config, "agents.claude.path").source == "person"
    assert value(harness.load(mine=""), "agents.claude.path").source == "default"


@pytest.mark.req("app.config.narrow")
def test_of_the_tools_those_are_offered_that_both_name(harness: Harness) -> None:
    assert harness.load('tools = ["read", "read"]').tools == ("read",)
    assert harness.load("tools = []").tools == ()
    config = harness.load('tools = ["read", "bash"]', 'tools = ["write", "read"]')
    assert config.tools == config.settings["tools"] == ("read",)
    assert config.notes == (f'{harness.theirs}: tools does not count: "bash" is not among yours',)
    assert harness.trusted('tools = ["bash"]', 'tools = ["read"]').tools == ()


@pytest.mark.req("app.config.limits")
@pytest.mark.parametrize("name", [item.name for item in fields(Limits)])
def test_a_project_never_raises_a_limit_and_lowers_only_those_that_protect_nobody(harness: Harness, name: str) -> None:
    now = getattr(Limits(), name)
    less = now / 2 if isinstance(now, float) else max(1, now // 2)
    more = harness.load(f"limits.{name} = {now * 2}")
    assert (more.limits, more.settings, len(more.notes)) == (Limits(), {}, 1)
    config = harness.load(f"limits.{name} = {less}")
    counts = name in LOWERED and less < now
    assert config.limits == (Limits().but(**{name: less}) if counts else Limits())
    assert bool(config.notes) is not counts


@pytest.mark.req("app.config.limits")
@pytest.mark.parametrize("text", ["limits.steps = 31", "limits.undo = 1", 'limits.tool = "none"', "limits.intercept = 0.1"])
def test_trust_does_not_let_a_project_do_more_with_limits(harness: Harness, text: str) -> None:
    config = harness.trusted(text)
    assert (config.limits, config.settings, len(config.notes)) == (Limits(), {}, 1)


@pytest.mark.req("app.config.limits")
def test_a_limit_is_lowered_from_where_the_person_has_it(harness: Harness) -> None:
    config = harness.load("[limits]\nsteps = 10\nshell = 5\ntool = 7", '[limits]\nsteps = 5\ntool = "none"\nframe = 1000')
    assert (config.limits.steps, config.limits.shell, config.limits.tool, config.limits.frame) == (5, 5, 7, 1000)
    assert config.notes == (f"{harness.theirs}: limits.steps does not count: a project can only lower a limit",)
    assert config.settings["limits"] == {"steps": 5, "tool": "none", "frame": 1000, "shell": 5}
    assert config.settings[PROJECT] == {"limits": {"tool": 7}}  # a dialect may have a lower one: the host knows
    assert harness.load('limits.tool = "none"').notes


@pytest.mark.req("app.config.narrow")
def test_a_guard_stays_a_guard_and_stays_on_under_whichever_key(harness: Harness) -> None:
    for theirs in ("gate", '"zot:gate"'):
        for mine in ("gate", '"zot:gate"'):
            config = harness.load(f"[guest.{theirs}]\nenabled = false\nguard = false", f"[guest.{mine}]\nguard = true")
            assert PROJECT not in config.settings
            assert [note.partition("count: ")[2] for note in config.notes] == [
                "a project cannot switch a guard off",
                "a project cannot take a guard back",
            ]
    config = harness.load("[guest.gate]\nenabled = true")
    assert config.notes == (f"{harness.theirs}: guest.gate.enabled does not count: a project cannot switch a guest on",)


@pytest.mark.req("app.config.narrow")
def test_what_narrows_a_guest_counts_at_once(harness: Harness) -> None:
    theirs = (
        '[guest."zot:gate"]\nguard = true\nservices = ["tools", "bus"]\nlimits = { tool = 5 }\n[guest.other]\nenabled = false\n'
    )
    config = harness.load(theirs, '[guest."zot:gate"]\nservices = ["bus", "chat"]\nlimits = { tool = "none" }')
    assert config.notes == ()
    key, note = 'guest."zot:gate".services', "unless it is a guard anyway"
    assert value(config, key) == ConfigValue(key, ("bus",), "project", str(harness.theirs), note)
    assert value(config, 'guest."zot:gate".limits.tool').value == 5
    assert value(config, "guest.other.enabled").note == "unless it is a guard"
    person = read_person_settings(config.settings)
    assert person.entries["zot:gate"].services == ("bus", "chat")
    assert person.project_guards == {"zot:gate"}
    vain = harness.load("[guest.a.limits]\ntool = 9\nhello = 1", "[guest.a.limits]\ntool = 3")
    assert PROJECT not in vain.settings
    assert len(vain.notes) == 2


@pytest.mark.req("app.config.narrow")
def test_a_guard_by_its_authors_word_is_not_switched_off_by_a_project(harness: Harness) -> None:
    write_zot_guest(harness.home / "guests" / "gate", guest_toml="guard = true")
    write_zot_guest(harness.home / "guests" / "other")
    config = harness.load("[guest.gate]\nenabled = false\n[guest.other]\nenabled = false")
    found = find_guests(cwd=harness.project, config=config.settings, environ=harness.environ)
    assert [guest.name for guest in found.guests] == ["gate"]
    assert [guest.name for guest in found.disabled] == ["other"]


@pytest.mark.req("app.config.narrow")
def test_a_guard_that_a_project_names_has_to_be_there(harness: Harness) -> None:
    config = harness.load("[guest.gate]\nguard = true")
    found = find_guests(cwd=harness.project, config=config.settings, environ=harness.environ)
    said = "the guard gate is named in the project's config.toml and was not found"
    assert [(hidden.folder, str(hidden)) for hidden in found.hidden_guards] == [(harness.theirs, said)]
    write_zot_guest(harness.home / "guests" / "gate")
    found = find_guests(cwd=harness.project, config=config.settings, environ=harness.environ)
    assert ([guest.settings.guard for guest in found.guests], found.hidden_guards) == ([True], ())


def test_a_trusted_project_grants_in_its_own_guests_name_and_in_others(harness: Harness) -> None:
    write_zot_guest(harness.home / "guests" / "gate")
    config = harness.trusted('[guest.gate]\nenv = ["B_TOKEN"]\nkeys = ["openai"]', '[guest.gate]\nenv = ["A_TOKEN"]')
    assert value(config, "guest.gate.env").value == ("A_TOKEN", "B_TOKEN")
    [guest] = find_guests(cwd=harness.project, config=config.settings, environ=harness.environ).guests
    assert (guest.settings.env, guest.settings.keys) == (("A_TOKEN", "B_TOKEN"), ("openai",))
    assert guest.settings.groups == set(GROUPS)


def test_a_note_does_not_grow_with_what_a_project_names(harness: Harness) -> None:
    names = [f"g{number}" for number in range(30)] + ["x" * 10_000]
    [note] = harness.load("".join(f"[guest.{name}]\nenabled = true\n" for name in reversed(names))).notes
    assert len(note) < 2000
    assert "and 19 others do not count: " in note


# -- files that cannot be ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("app.config.errors")
@pytest.mark.parametrize("whose", ["mine", "theirs"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("agent = ", "Invalid value"),
        ("agnet = 'x'", "there is no setting 'agnet'"),
        ("project = {}", "there is no setting 'project'"),
        ("[guest.a]\ngaurd = true", "gaurd"),
        ("guest.a.b.c = 1", "unknown field `b`"),
        ("agent = ''", "agent"),
        ("agent = 1", "agent"),
        ("tools = 'bash'", "tools"),
        ("tools = ['']", "tools"),
        ("record = 'no'", "record"),
        ("prompt_order = { x = 'y' }", "prompt_order"),
        ("prompt_order = { x = 0x" + "f" * 5000 + " }", "prompt_order"),
        ("compact_at = -1", "compact_at"),
        ("compact_at = true", "compact_at"),
        ("boxes = 1", "boxes"),
        ("limits.tolo = 1", "there is no limit tolo"),
        ("[guest.a]\nservices = ['tolls']", "there is no group 'tolls'; there is tools"),
        ("a = " + "[" * 100_000, "nested too deep"),
    ],
)
def test_a_file_that_cannot_be_understood_is_an_error_that_names_it(harness: Harness, whose: str, text: str, reason: str) -> None:
    with pytest.raises(BadSettings, match=reason) as raised:
        harness.load(mine=text) if whose == "mine" else harness.load(theirs=text)
    assert raised.value.who == str(getattr(harness, whose))


@pytest.mark.req("app.config.errors")
def test_a_pipe_in_the_place_of_a_projects_settings_is_an_error_and_no_wait(harness: Harness) -> None:
    os.mkfifo(harness.theirs)
    with pytest.raises(BadSettings, match="it is not a file"):
        Config.load(harness.project, environ=harness.environ)


@pytest.mark.req("app.config.narrow")
@pytest.mark.parametrize("key", ["gate", '"zot:gate"'])
def test_a_guard_keeps_its_services_keys_and_limits_whatever_a_project_says(harness: Harness, key: str) -> None:
    write_zot_guest(harness.home / "guests" / "gate")
    theirs = f"[limits]\ntool = 1\n[guest.{key}]\nservices = []\n[guest.{key}.limits]\ntool = 2\n"
    config = harness.load(theirs, '[guest.gate]\nguard = true\nkeys = ["anthropic"]')
    assert [note.partition("count: ")[2] for note in config.notes] == [
        "a project cannot take services from a guard",
        "a project cannot lower a limit of a guard",
    ]
    assert value(config, "limits.tool").note == "for each guest but guards, where it is lower"
    [gate] = find_guests(cwd=harness.project, config=config.settings, environ=harness.environ).guests
    assert (gate.settings.groups, gate.settings.keys) == (frozenset(GROUPS), ("anthropic",))
    assert gate.settings.apply_limits(Limits()) == Limits()


@pytest.mark.req("app.config.narrow")
def test_what_a_project_says_in_vain_is_quoted_and_cut(harness: Harness) -> None:
    fake = "x\\n  [serai] error: log in again"
    [note] = harness.load(
        f'tools = ["{fake}", "{"y" * 500}", {", ".join(f"{chr(34)}z{n}{chr(34)}" for n in range(20))}]', "tools = []"
    ).notes
    assert f'"{fake}", "{"y" * 79}…, "z0", ' in note
    assert note.endswith('"z9", and 10 others is not among yours')
    [note] = harness.load(f'[guest."{fake}"]\nenv = ["A"]').notes
    assert f'guest."{fake}".env does not count' in note


@pytest.mark.req("app.config.errors")
@pytest.mark.parametrize("text", ["{} = 1", "limits.{} = 1", "[guest.a]\n{} = 1", "[guest.{}]\nguard = 1", "limits.tool = '{}'"])
def test_of_a_projects_own_words_an_error_quotes_only_a_little(harness: Harness, text: str) -> None:
    with pytest.raises(BadSettings) as raised:
        harness.load(text.format("k" * 100_000))
    assert len(str(raised.value)) < 1000


@pytest.mark.req("app.config.errors", "app.config.limits")
@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "1_000_000_000_000_000_000"])
@pytest.mark.parametrize("place", ["limits.steps", "limits.remember", "guest.x.limits.tool", "boxes.max_boxes", "boxes.x.y"])
def test_a_number_beyond_all_bounds_is_an_error(harness: Harness, place: str, number: str) -> None:
    for whose in ("mine", "theirs"):
        with pytest.raises(BadSettings, match=place.rpartition(".")[2] if "boxes" not in place else "boxes") as raised:
            harness.load(**{whose: f"{place} = {number}"})  # type: ignore[arg-type]
        assert raised.value.who == str(getattr(harness, whose))
        assert len(str(raised.value)) < 1000
        assert "4300" not in str(raised.value)


def test_a_home_inside_the_project_is_the_persons_once(tmp_path: Path) -> None:
    (tmp_path / ".serai").mkdir()
    (tmp_path / ".serai" / "config.toml").write_text('agent = "mine"\nrecord = false')
    config = Config.load(tmp_path, environ={"SERAI_HOME": str(tmp_path / ".serai")})
    assert (config.agent, config.record, config.notes) == ("mine", False, ())
    assert value(config, "agent").source == "person"


@pytest.mark.req("app.config.pinned")
def test_the_settings_that_count_are_those_that_were_checked(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    good, evil = 'agent = "theirs"', 'agent = "evil"'
    harness.trusted(good)
    check = Trust.check_config

    def agent(*, read: str, meanwhile: str) -> str:
        def swapped(self: Trust, *args: Any) -> str:
            harness.theirs.write_text(meanwhile)
            return check(self, *args)

        harness.theirs.write_text(read)
        with monkeypatch.context() as patched:
            patched.setattr(Trust, "check_config", swapped)
            return Config.load(harness.project, environ=harness.environ).agent

    assert agent(read=good, meanwhile=evil) == "theirs"
    assert agent(read=evil, meanwhile=good) == "resident"


def test_a_folder_that_is_linked_has_the_trust_of_the_real_one(harness: Harness, tmp_path: Path) -> None:
    harness.trusted('agent = "theirs"')
    (tmp_path / "alias").symlink_to(harness.project)
    assert Config.load(tmp_path / "alias", environ=harness.environ).agent == "theirs"
