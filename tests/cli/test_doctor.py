"""`serai doctor`: what works and what does not, on a page that can be shown to anybody."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import serai
from serai.agents.models.catalogue import KEYS
from serai.app.doctor import checks
from serai.app.doctor.checks import CHECKS, CheckLine, DoctorContext
from serai.app.doctor.redaction import Redactor, remove_values
from serai.boxes.backends.local import LocalBackend
from serai.host.trust import Trust
from serai.model.approvals import Approval
from serai.model.tools import ToolCall
from serai.policy import CallContext, DecisionStore
from tests.support.claude.programs import program
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import parse_objects, write_guest, write_package

NAME = "marguerite"  # who works here
TOKEN = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"
KEY = "sk" + "-ant-abcdefghijklmnopqrstuvwxyz"
HIDDEN, WORD = "hunter2-hunter2-hunter2", "correct horse battery"  # they look like nothing
# Of its own session and with the terminal as its own, as a shell of a person has it.
OWN_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
SECTIONS = ["Serai", "home", "agents", "models", "guests", "policy", "boxes", "terminal", "recordings"]


@dataclass(frozen=True)
class Page:
    """What `--json` printed."""

    status: int
    lines: list[dict[str, Any]]

    def of(self, section: str, *marks: str) -> list[str]:
        return [line["text"] for line in self.lines if line.get("section") == section and line["mark"] in (marks or tuple(COUNTS))]

    def problems(self) -> list[tuple[str, str]]:
        return [(line["section"], line["text"]) for line in self.lines if line.get("mark") == "problem"]


COUNTS = ("ok", "note", "problem")


class Harness(InProcessShell):
    def page(self, *arguments: str | Path, **env: str) -> Page:
        ran = self("doctor", "--json", *arguments, cwd=None, **env)
        assert ran.stderr == ""
        return Page(ran.returncode, parse_objects(ran))


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """One where nothing is known but what a test says. Boxes are looked at in a test of their own: that takes a process."""
    for name in ("SERAI_DEFAULT_MODEL", "PIGLET_DEFAULT_MODEL", *(one for names in KEYS.values() for one in names)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(LocalBackend, "missing", "it is not looked at")
    harness = Harness(tmp_path)
    harness.home.mkdir()
    return harness


# -- the page ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("app.doctor.page")
def test_a_sound_installation_has_nothing_broken_and_a_line_for_each_part(harness: Harness) -> None:
    ran, page = harness("doctor"), harness.page()
    assert (ran.returncode, ran.stderr, page.status) == (0, "", 0)
    assert [line for line in ran.stdout.splitlines() if line and not line.startswith(" ")][:-2] == SECTIONS
    assert list(dict.fromkeys(line["section"] for line in page.lines[:-1])) == SECTIONS
    assert ran.stdout.splitlines()[-2].startswith("nothing is broken, ")
    assert ran.stdout.splitlines()[-1].startswith("This page can be shown to others")
    assert page.lines[-1]["problems"] == 0
    assert f"version {serai.__version__}" in page.of("Serai", "ok")


@pytest.mark.req("app.doctor.page")
def test_a_part_that_breaks_down_is_a_line_and_the_others_go_on(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(look: DoctorContext) -> Iterator[CheckLine]:
        yield CheckLine("ok", "so far")
        raise ZeroDivisionError("nothing to divide")

    monkeypatch.setitem(CHECKS, "models", broken)
    page = harness.page()
    assert page.status == 1
    assert page.problems() == [("models", "it could not be looked at: ZeroDivisionError: nothing to divide")]
    assert page.of("models", "ok") == ["so far"]
    assert page.of("recordings")
    assert "1 problem, " in harness("doctor").stdout


@pytest.mark.parametrize("no_color", ["", "1"])
def test_marks_have_colours_unless_nobody_wants_them(harness: Harness, no_color: str) -> None:
    harness.coloured = True
    assert ("\x1b[32mok" in harness("doctor", NO_COLOR=no_color, TERM="xterm").stdout) is (not no_color)


# -- home -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("config.toml", "= no", "Invalid statement"),
        ("config.toml", "geusts = 1", "there is no setting 'geusts'"),
        ("config.toml", "[guest.x]\ngaurd = true", "gaurd"),
        ("config.toml", "[boxes]\nbakend = 'x'", "bakend"),
        ("models.toml", "[[models]]\nidd = 'x'", "idd"),
        ("policy.toml", "[[rule]]\nid = 'x'\ndecide = 'never'", "decide"),
    ],
)
@pytest.mark.req("app.doctor.page")
def test_a_file_that_cannot_be_read_is_a_problem_with_what_to_do(harness: Harness, file: str, text: str, said: str) -> None:
    (harness.home / file).write_text(text)
    page = harness.page()
    [line] = [line for line in page.lines if line.get("section") == "home" and line["mark"] == "problem"]
    assert page.status == 1
    assert file in line["text"]
    assert said in line["text"]
    assert line["hint"]
    assert page.of("recordings")


def test_files_that_are_read_and_those_that_are_not_there_are_told_apart(harness: Harness) -> None:
    (harness.home / "config.toml").write_text("record = false")
    page = harness.page()
    assert {"config.toml: read", "models.toml: none", "policy.toml: none"} <= set(page.of("home", "ok"))
    assert page.of("recordings", "note") == ["off: the settings say `record = false`"]


def test_what_a_project_sets_in_vain_is_a_note(harness: Harness) -> None:
    (harness.cwd / ".serai").mkdir()
    (harness.cwd / ".serai" / "config.toml").write_text('default_model = "opus"\nrecord = false')
    page = harness.page()
    assert [text.split(": ")[1] for text in page.of("home", "note")] == ["default_model does not count", "record does not count"]
    (harness.cwd / ".serai" / "config.toml").write_text("= broken")
    assert ("home", "Invalid statement") in [
        (section, text.split(": ")[1].split(" (")[0]) for section, text in harness.page().problems()
    ]


def test_an_agent_that_was_chosen_is_told_with_the_reason(harness: Harness) -> None:
    (harness.home / "config.toml").write_text('agent = "resident"')
    assert page_ends(harness, "ok", "resident would be used: agent of ", "/home/config.toml says so")
    (harness.home / "config.toml").write_text(f'agent = "{HIDDEN}"')
    assert page_ends(harness, "problem", "agent of ", "/home/config.toml names one that is not there")


def page_ends(harness: Harness, mark: str, start: str, end: str) -> bool:
    text = harness.page().of("agents", mark)[-1]
    return text.startswith(start) and text.endswith(end)


def test_a_file_that_is_a_pipe_lets_nobody_wait(harness: Harness) -> None:
    os.mkfifo(harness.home / "policy.toml")
    assert ("home", "policy.toml") in [(section, text.split("/")[-1].split(":")[0]) for section, text in harness.page().problems()]


def test_a_home_that_is_no_folder_is_a_problem(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    page = harness.page(SERAI_HOME=str(tmp_path / "file"))
    assert any(section == "home" and "cannot be written" in text for section, text in page.problems())


def test_what_is_kept_is_counted(harness: Harness) -> None:
    (harness.home / "sessions").mkdir()
    for name in "ab":
        (harness.home / "sessions" / name).write_bytes(b"x" * 1536)
    assert "recordings: 0 files, 0 bytes; sessions: 2 files, 3.0 KiB; undo: 0 files, 0 bytes" in harness.page().of("home", "ok")


def test_little_room_is_a_problem(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_LITTLE", 1 << 62)
    assert any(section == "home" and "free for what Serai writes" in text for section, text in harness.page().problems())


# -- Serai, agents, models --------------------------------------------------------------------------------------------------------


def test_an_extra_that_is_missing_is_a_note_with_the_way_to_have_it(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == "cryptography" else find_spec(name))
    page = harness.page()
    assert page.of("Serai", "note") == ["extra seal: cryptography not installed"]
    assert "pip install 'serai[seal]'" in [line.get("hint") for line in page.lines]
    assert any(re.fullmatch(r"extra fast: uvloop [0-9.]+", text) for text in page.of("Serai", "ok"))


def test_agents_of_other_packages_are_told_and_not_run(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(tmp_path / "site", "rover", "acme_rover")
    write_package(tmp_path / "site", "ghost", "acme_ghost.deep")
    write_package(tmp_path / "site", "resident", "acme_rover")
    (tmp_path / "site" / "acme_rover.py").write_text("raise SystemExit('it was run')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    (harness.home / "config.toml").write_text(f'[agents.claude]\npath = "{program(tmp_path / "claude", "2.1.325")}"\n')
    page = harness.page()
    assert page.of("agents", "ok") == [
        "resident: can be used",
        f"claude: 2.1.325, settings: {Redactor(os.environ)(f'{tmp_path}/claude')}",  # which has the name of who runs the tests
        "mock: can be used",
        "rover: from acme 1.5",
        "resident would be used: no other was chosen",
    ]
    assert page.of("agents", "note") == ["resident of acme 1.5: not used, Serai has its own of that name"]
    assert page.problems() == [("agents", "ghost of acme 1.5: its module acme_ghost.deep is missing")]


@pytest.mark.parametrize("chosen", [False, True])
def test_a_driven_agent_without_its_program_is_a_problem_only_if_it_was_chosen(
    harness: Harness, tmp_path: Path, chosen: bool
) -> None:
    text = 'agent = "claude"\n' if chosen else ""
    (harness.home / "config.toml").write_text(f'{text}[agents.claude]\npath = "{tmp_path}/none"\n')
    page = harness.page()
    [line] = [line for line in page.lines if line.get("text", "").startswith("claude: ")]
    assert (line["section"], line["mark"]) == ("agents", "problem" if chosen else "note")
    assert "it does not exist" in line["text"]
    assert "claude-agent-sdk" in line["hint"]
    assert page.status == (1 if chosen else 0)


@pytest.mark.req("app.doctor.model")
def test_without_a_key_the_parrot_is_a_note(harness: Harness) -> None:
    assert [text.partition(":")[0] for text in harness.page().of("models", "note")] == [
        "no key of a provider is set",
        "parrot/parrot would be used",
    ]


@pytest.mark.req("app.doctor.model")
def test_the_model_that_would_be_used_is_told_with_the_reason_and_keys_by_name(harness: Harness) -> None:
    page = harness.page(OPENAI_API_KEY=HIDDEN, GEMINI_API_KEY=HIDDEN)
    assert page.of("models") == [
        "keys that are set: OPENAI_API_KEY, GEMINI_API_KEY",
        "openai/gpt-5.4 would be used: no model was chosen; openai/gpt-5.4 is, because OPENAI_API_KEY is set",
    ]


@pytest.mark.req("app.doctor.model")
def test_a_model_that_was_chosen_and_cannot_be_used_is_a_problem(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == "anthropic" else find_spec(name))
    page = harness.page(SERAI_DEFAULT_MODEL="opus")
    assert "anthropic/claude-opus-5-5 would be used: SERAI_DEFAULT_MODEL is set" in page.of("models", "ok")
    assert page.problems() == [
        ("models", "anthropic/claude-opus-5-5 has no key"),
        ("models", "anthropic/claude-opus-5-5 needs the package anthropic"),
    ]
    assert harness.page(SERAI_DEFAULT_MODEL=HIDDEN).of("models", "problem") == [
        "SERAI_DEFAULT_MODEL names a model that nobody knows"
    ]


# -- guests, policy, boxes, terminal ----------------------------------------------------------------------------------------------


@pytest.mark.req("app.doctor.quiet")
def test_guests_are_told_with_what_is_wrong_and_none_is_started(harness: Harness) -> None:
    started = harness.home / "started"
    own = write_guest(harness.home / "guests" / "gate", guest_toml="guard = true", version="1.2")
    write_guest(harness.home / "guests" / "idle", enabled=False)
    (harness.home / "guests" / "torn").mkdir()
    (harness.home / "guests" / "torn" / "extension.json").write_text("{")
    theirs = write_guest(harness.cwd / ".serai" / "guests" / "theirs")
    for folder in (own, theirs):
        (folder / "guest.py").write_text(f"open({str(started)!r}, 'w')")
    page = harness.page()
    assert [text.partition(", in ")[0] for text in page.of("guests", "ok")] == ["guard zot:gate 1.2, user", "zot:idle, user"]
    [untrusted] = page.of("guests", "note")
    assert untrusted.startswith("zot:theirs, project, in ")
    assert untrusted.endswith("not trusted: it was never trusted")
    [torn] = page.of("guests", "problem")
    assert "torn: " in torn
    assert page.status == 1
    assert not started.exists()


def test_a_guest_that_is_named_is_looked_at_too(harness: Harness, tmp_path: Path) -> None:
    folder = write_guest(tmp_path / "mine")
    assert [text.partition(", in ")[0] for text in harness.page("--guest", folder, "--no-ext").of("guests")] == ["zot:mine, ad hoc"]
    assert harness.page().of("guests") == ["none"]


def test_rules_are_counted_and_what_does_not_count_is_a_note(harness: Harness) -> None:
    rule = '[[rule]]\nid = "{0}"\ndecide = "{1}"\ntool = "x"\n'
    (harness.home / "policy.toml").write_text('mode = "auto"\n' + rule.format("a", "deny") + rule.format("b", "ask"))
    (harness.cwd / ".serai").mkdir()
    (harness.cwd / ".serai" / "policy.toml").write_text(rule.format("c", "allow") + rule.format("d", "deny"))
    before = harness.page()
    files, counts, *_ = before.of("policy", "ok")
    assert re.fullmatch(r"rules of .*/project/\.serai/policy\.toml, .*/home/policy\.toml, Serai itself", files)
    assert counts.startswith("2 deny, 1 ask, ")
    mode, note = before.of("policy", "note")
    assert mode == "mode auto"
    assert "1 of its rules allow something and do not count" in note
    Trust(harness.home / "trust.json").allow(harness.cwd)
    after = harness.page()
    assert after.of("policy", "note") == ["mode auto"]
    assert int(after.of("policy", "ok")[1].split()[-2]) == int(counts.split()[-2]) + 1


def test_an_approval_that_waits_is_a_note_that_says_nothing_of_it(harness: Harness) -> None:
    assert "no approval waits" in harness.page().of("policy", "ok")
    with closing(DecisionStore.usual({"SERAI_HOME": str(harness.home)})) as kept:
        call = ToolCall("bash", {"command": f"echo {HIDDEN}"}, id="c1")
        kept.ask(Approval(id="1", agent="resident", call=call), CallContext(cwd=str(harness.cwd), session="s"), "digest", 3600.0)
        assert harness.page().of("policy", "note") == ["1 approval waiting for an answer"]


def test_what_makes_boxes_here_is_told_and_what_does_not_with_the_reason(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert harness.page().of("boxes", "note") == [
        "namespaces: does not work here: it is not looked at",
        "process: does not work here: it is not looked at",
    ]
    monkeypatch.setattr(LocalBackend, "missing", "")
    assert [text.partition(",")[0] for text in harness.page().of("boxes", "ok")] == ["namespaces: works", "process: works"]


def test_without_a_terminal_nobody_can_be_asked(harness: Harness) -> None:
    """In a session of its own a process has no terminal."""
    command = harness.argv("doctor", "--json")
    env = harness.env | {"NO_COLOR": ""}
    ran = subprocess.run(command, env=env, cwd=harness.cwd, start_new_session=True, capture_output=True, text=True, check=False)
    lines = [line for line in parse_objects(ran) if line.get("section") == "terminal"]
    assert [line["mark"] for line in lines] == ["note", "ok"]
    assert lines[1]["text"] == "no colours: this is not printed on a terminal"


def test_with_a_terminal_somebody_can_be_asked(harness: Harness) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", OWN_TERMINAL, *harness.argv("doctor", "--json")]
    try:
        ran = subprocess.run(
            command, env=harness.env, cwd=harness.cwd, stdin=theirs, stdout=subprocess.PIPE, text=True, timeout=30, check=False
        )
    finally:
        os.close(theirs)
        os.close(ours)
    assert Page(ran.returncode, parse_objects(ran)).of("terminal") == ["there is one to ask on", "no colours: NO_COLOR is set"]


# -- what strangers may read ------------------------------------------------------------------------------------------------------


def plant_secrets(harness: Harness, *, broken: bool) -> dict[str, str]:
    """Secrets and names wherever there is a place for one; the environment that has the others. `broken`: errors have them too."""
    (harness.home / "config.toml").write_text(
        f'system_prompt = "{HIDDEN}"\ndefault_model = "{HIDDEN}"\nagent = "{HIDDEN}"\n'
        + (f'record = "{HIDDEN}"\n' if broken else "")
        + f'[boxes]\nhooks = [{{ path = "/srv/{NAME}/hook", env = {{ TOKEN = "{HIDDEN}" }} }}]\n'
    )
    (harness.home / "models.toml").write_text(
        f'[[models]]\nid = "{TOKEN}"\nprovider = "acme"\nbase_url = "https://{NAME}:{HIDDEN}@acme.example/v1"\n'
        f'headers = {{ Authorization = "Bearer {HIDDEN}", X-Odd = "{HIDDEN}" }}\n'
    )
    decide = HIDDEN if broken else "deny"
    (harness.home / "policy.toml").write_text(f'[[rule]]\nid = "a"\ndecide = "{decide}"\nbecause = "{HIDDEN}"\n')
    write_guest(harness.home / "guests" / f"{NAME}-tools", name=f"{NAME.upper()}s-guest", version=KEY)
    write_guest(harness.home / "guests" / TOKEN, guest_toml=f'dialect = "https://me:{HIDDEN}@x.example/"')
    harness.cwd = harness.cwd.parent / f"{NAME}work" / "parrot-perch" / "eve" / TOKEN
    write_guest(harness.cwd / ".serai" / "guests" / "theirs")
    (harness.cwd / ".serai" / "policy.toml").write_text(f'[[rule]]\nid = "{NAME}"\ndecide = "allow"\ntool = "{HIDDEN}"\n')
    (harness.cwd / ".serai" / "config.toml").write_text(f'small_model = "{HIDDEN}"\n')
    return {
        "HOME": str(harness.home),
        "USER": NAME,
        "LOGNAME": NAME,
        "SUDO_USER": "eve",
        "HOSTNAME": "parrot-perch.example",
        "ANTHROPIC_API_KEY": KEY,
        "ACME_API_KEY": WORD,
        "SERAI_DEFAULT_MODEL": WORD,
        "OPENAI_BASE_URL": f"https://{NAME}:{WORD}@proxy.example/v1",
        "SOMETHING_ELSE": WORD,
    }


@pytest.mark.req("app.doctor.discreet")
@pytest.mark.parametrize("flag", [(), ("--json",)])
@pytest.mark.parametrize("broken", [False, True])
def test_nothing_that_is_somebody_s_own_is_on_the_page(
    harness: Harness, flag: tuple[str, ...], broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = plant_secrets(harness, broken=broken)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "parrot-perch", "6.1-parrot-perch", "v", "x86_64")))
    ran = harness("doctor", *flag, cwd=None, **env)
    shown = ran.stdout + ran.stderr
    assert ran.returncode == 1
    for there in ["in ~", "<machine>", "config.toml", "policy.toml", "models.toml: read"]:
        assert there in shown  # it did look there
    for there in () if broken else ("<user>work/<machine>/<user>/", "zot:<user>s-guest", "zot:theirs", "do not count"):
        assert there in shown
    for secret in (HIDDEN, WORD, TOKEN, KEY, "acme.example", "proxy.example"):
        assert secret not in shown
    for name in (NAME, "parrot-perch", str(harness.home)):
        assert name not in shown.lower()
    assert not re.search(r"\beve\b", shown)


def build_redactor(**env: str) -> Redactor:
    return Redactor({"HOME": "/srv/homes/ann", "USER": NAME, **env})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("in /srv/homes/ann/.config/serai: x", "in ~/.config/serai: x"),
        ("/srv/homes/ann", "~"),
        ("/srv/homes/anna/x", "/srv/homes/anna/x"),
        ("/data/srv/homes/ann/x", "/data/srv/homes/<user>/x"),
        ("/mnt/people/ann", "/mnt/people/<user>"),
        ("ann and zot:ann in /mnt/ann.d", "ann and zot:ann in /mnt/ann.d"),
        ("/home/somebody/x and /Users/else/y", "/home/<user>/x and /Users/<user>/y"),
        (f"/data/{NAME}2/x, zot:{NAME.title()}", "/data/<user>2/x, zot:<user>"),
        ("https://me:password@host.example/", "https://me:********@host.example/"),
    ],
)
@pytest.mark.req("app.doctor.discreet")
def test_homes_names_and_passwords_are_taken_out_of_texts(text: str, shown: str) -> None:
    assert build_redactor()(text) == shown


@pytest.mark.req("app.doctor.discreet")
@pytest.mark.parametrize(
    "said",
    [
        'env = ["MYDB=correct horse staple"]',
        'keys = ["correct horse staple"]',
        'services = ["correct horse staple"]',
        'limits = { tool = "correct horse staple" }',
        'limits = { tool = "correct horse staple", hello = 0x' + "f" * 5000 + " }",
        'dialect = "correct horse staple"',
        'env = ["correct horse staple' + "x" * 500 + '"]',
    ],
)
def test_no_value_of_a_guests_own_settings_is_on_the_page(harness: Harness, said: str) -> None:
    write_guest(harness.home / "guests" / "torn", guest_toml=said)
    page = harness.page()
    assert "guest.toml" in page.of("guests", "problem")[0]
    assert "staple" not in repr(page)


def test_a_number_without_end_keeps_no_other_value_from_being_left_out(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"name": "known by", "args": ["correct horse", %s]}' % ("9" * 4000))
    assert remove_values("known by 'correct horse'", str(tmp_path / "x.json")) == "known by '…'"
    (tmp_path / "x.toml").write_text(f'a = "correct horse"\nb = 0x{"f" * 5000}')
    assert remove_values("'correct horse'", str(tmp_path / "x.toml")) == "'…'"


def test_a_short_name_counts_where_it_stands_alone() -> None:
    assert build_redactor(USER="al")("/data/al/x al-z all also") == "/data/<user>/x <user>-z all also"


def test_the_name_of_everybody_is_nobody_s() -> None:
    assert build_redactor(USER="root", HOSTNAME="localhost")("root at localhost") == "root at localhost"


def test_a_secret_of_the_environment_is_known_whatever_it_looks_like() -> None:
    assert HIDDEN not in build_redactor(MY_PASSWORD=HIDDEN)(f"it says {HIDDEN}")


def test_what_stands_for_a_name_is_not_taken_for_another() -> None:
    assert build_redactor(HOSTNAME="user.example")(f"{NAME} at user.example") == "<user> at <machine>"


def test_values_of_a_file_are_taken_out_of_the_error_about_it_and_names_are_not(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('id = "called so"\nname = "it\'s a secret"\n[deep]\nlist = ["another one", 12345]\nshort = "abc"')
    text = f"called so: there is no `name`: {'it' + chr(39) + 's a secret'!r}, 'another one' 12345 abc"
    assert remove_values(text, str(file)) == "called so: there is no `name`: \"…\", '…' … abc"
    assert remove_values(text, str(tmp_path / "none")) == text
