"""`serai guest`, `serai trust`, `serai tool`, `serai doctor` and their like with piglet guests, as a person calls them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.support import piglet_guests
from tests.support.cli.shell import Shell, parse_objects, write_guest
from tests.support.piglet_guests.guest_folder import interceptor, offer
from tests.support.piglet_guests.steps import tell

EXAMPLES = Path(__file__).parents[2] / "examples" / "piglet"
HARBOUR = EXAMPLES / "by-hand"


def home_guests_path(shell: Shell) -> Path:
    """Where the person's own guests lie."""
    return shell.home / "guests"


def project_guests_path(shell: Shell) -> Path:
    """Where those of the project lie."""
    return shell.cwd / ".piglet" / "extensions"


def write_piglet_guest(place: Path, name: str = "one", **behaviour: object) -> Path:
    return piglet_guests.write(place, name, **{"tools": {"ping": "pong"}, **behaviour})  # type: ignore[arg-type]


def config_path(shell: Shell) -> Path:
    return shell.home / "config.toml"


# -- what there is ----------------------------------------------------------------------------------------------------------------


def test_the_list_has_piglet_guests_beside_others(shell: Shell) -> None:
    folder = write_piglet_guest(home_guests_path(shell), "a", version="1.2", manifest={"description": "pings"})
    write_guest(home_guests_path(shell) / "b")
    assert [line.split()[:4] for line in shell("guest", "list").stdout.splitlines()[1:]] == [
        ["user", "a", "1.2", "yes"],
        ["user", "b", "-", "yes"],
    ]
    forms = {form["name"]: form for form in parse_objects(shell("guest", "list", "--live", "--json"))}
    assert (forms["a"]["id"], forms["a"]["dialect"], forms["a"]["state"]) == ("piglet:a", "piglet", "ready")
    assert (forms["a"]["tools"], forms["a"]["description"], forms["a"]["folder"]) == (["ping"], "pings", str(folder))


@pytest.mark.req("host.cli.show")
def test_a_guest_is_shown_with_all_ten_kinds_of_what_it_offers(shell: Shell) -> None:
    write_piglet_guest(
        home_guests_path(shell),
        commands={"go": offer("gone", description="goes")},
        sections={"Units": offer("Use metric.", order=40)},
        interceptors={"gate": interceptor(priority=7)},
        handlers={"meter": offer(None, events=["EventTurnEnd"])},
        shortcuts=["ctrl+g"],
        hooks=["clock"],
        transformers=["alias"],
        compactor=offer("short", threshold=500),
        providers=["acme"],
    )
    ran = shell("guest", "show", "one")
    head, place, *offers = ran.stdout.splitlines()
    assert (head, ran.stderr, ran.returncode) == ("piglet:one 1.0: ready", "", 0)
    assert place.startswith(f"  user, in {home_guests_path(shell) / 'one'}; runs ")
    kinds = ["tool ping", "command go", "interceptor gate", "event handler meter", "prompt section Units", "shortcut ctrl+g"]
    kinds += ["message hook clock", "input transformer alias", "compactor compactor", "provider acme"]
    assert [next(kind for kind in kinds if line.startswith(f"  {kind}")) for line in offers] == kinds
    [form] = parse_objects(shell("guest", "show", "piglet:one", "--json"))
    assert len(form["offers"]) == 10
    assert form["offers"]["tools"][0]["name"] == "ping"
    assert form["offers"]["interceptors"][0]["priority"] == 7


@pytest.mark.req("host.cli.show")
def test_a_guest_that_does_not_start_is_shown_without_a_start(shell: Shell) -> None:
    write_piglet_guest(project_guests_path(shell))
    assert shell("guest", "show", "one").stdout.startswith("piglet:one 1.0: not started: it was never trusted\n")
    write_piglet_guest(home_guests_path(shell), "off")
    shell("guest", "disable", "off")
    assert shell("guest", "show", "off").stdout.startswith("piglet:off 1.0: disabled\n")
    assert not (shell.home / "logs").exists()
    write_piglet_guest(home_guests_path(shell), "bad", initialize=[piglet_guests.throw("no licence")])
    ran = shell("guest", "show", "bad")
    assert (ran.stdout.startswith("piglet:bad 1.0: gone\n"), ran.returncode) == (True, 5)
    assert "no licence" in ran.stderr


def test_what_is_shown_acts_on_no_terminal(shell: Shell) -> None:
    write_piglet_guest(home_guests_path(shell), tools={"ping": offer("", description="\x1b[2Jclear\x07")})
    for words in (["show", "one"], ["show", "one", "--json"]):
        ran = shell("guest", *words)
        assert (ran.returncode, set("\x1b\x07") & set(ran.stdout + ran.stderr)) == (0, set())


# -- on and off -------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("host.cli.switch-settings")
def test_a_guest_whose_manifest_has_no_switch_is_switched_in_the_settings(shell: Shell) -> None:
    folder = write_piglet_guest(home_guests_path(shell))
    before = (folder / "manifest.yaml").read_bytes()
    shell.home.joinpath("config.toml").write_text('# mine\nagent = "resident" # as ever\n')
    ran = shell("guest", "disable", "one")
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"disabled piglet:one: in {config_path(shell)}\n", "", 0)
    assert config_path(shell).read_text().startswith('# mine\nagent = "resident" # as ever\n')
    assert tomllib.loads(config_path(shell).read_text())["guest"] == {"piglet:one": {"enabled": False}}
    assert shell("tool", "list").stdout == ""
    [form] = parse_objects(shell("guest", "enable", "one", "--json"))
    assert form == {"id": "piglet:one", "folder": str(folder), "enabled": True, "settings": str(config_path(shell))}
    assert shell("tool", "call", "ping").stdout == "pong\n"
    assert (folder / "manifest.yaml").read_bytes() == before


@pytest.mark.req("host.cli.switch-settings")
def test_one_that_a_list_names_stays_off_and_that_is_told(shell: Shell) -> None:
    write_piglet_guest(home_guests_path(shell))
    config_path(shell).write_text('disabled_extensions = ["one"]\n')
    ran = shell("guest", "enable", "one")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "piglet:one is still off" in ran.stderr
    assert "take one from `disabled_extensions`" in ran.stderr


def test_a_trusted_guest_that_is_switched_stays_trusted(shell: Shell) -> None:
    write_piglet_guest(project_guests_path(shell))
    shell("trust")
    assert shell("guest", "disable", "one").returncode == 0
    ran = shell("guest", "enable", "one")  # its manifest is as it was
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert shell("tool", "call", "ping").stdout == "pong\n"


# -- coming and going -------------------------------------------------------------------------------------------------------------


def test_a_guest_is_added_called_logged_and_removed(shell: Shell) -> None:
    ran = shell("ext", "install", HARBOUR, "--name", "sea")
    folder = home_guests_path(shell) / "sea"
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"added piglet:harbour: {folder}\n", "", 0)
    assert shell("tool", "call", "tide", '{"harbour":"Bergen"}').stdout == "Bergen: the water stands at 364 cm\n"
    log = shell("guest", "logs", "harbour").stdout
    assert "starts harbour 1.0.0" in log
    assert "descriptors 3 and 4" in log
    assert shell("guest", "remove", "-y", "piglet:harbour").stdout == f"removed piglet:harbour: {folder}\n"
    assert not folder.exists()


def test_what_it_asks_for_is_told_with_how_to_grant_it(shell: Shell, tmp_path: Path) -> None:
    source = write_piglet_guest(tmp_path)
    (source / "guest.toml").write_text('keys = ["anthropic"]\nreplace = ["read"]\n')
    told = shell("guest", "add", source).stderr.splitlines()
    assert told[0] == f"it asks for replace read, key anthropic; to grant that, write into {config_path(shell)}:"
    config_path(shell).write_text("\n".join(told[1:]))
    [form] = parse_objects(shell("guest", "show", "one", "--json"))
    assert (form["has"], form["asks"]) == (["replace read", "key anthropic"], [])


@pytest.mark.req("piglet.rule.project-trust")
def test_a_projects_guest_starts_once_it_is_trusted_and_not_when_it_has_changed(shell: Shell) -> None:
    folder = write_piglet_guest(project_guests_path(shell))
    (shell.cwd / ".serai").mkdir()
    (shell.cwd / ".serai" / "config.toml").write_text('[guest."piglet:one"]\nenabled = true\n')
    assert shell("tool", "list").stdout == ""
    trusted = shell("trust")
    assert trusted.stdout.startswith("trusted piglet:one: ")
    assert shell("tool", "call", "ping").stdout == "pong\n"
    manifest = folder / "manifest.yaml"
    manifest.write_text(manifest.read_text() + "\n# other\n")
    ran = shell("tool", "list")
    assert (ran.stdout, "`serai trust` in that folder lets it start" in ran.stderr) == ("", True)


def test_the_doctor_knows_them(shell: Shell) -> None:
    write_piglet_guest(home_guests_path(shell))
    (home_guests_path(shell) / "bad").mkdir()
    (home_guests_path(shell) / "bad" / "manifest.yaml").write_text("name: bad\n")
    lines = [" ".join(line.split()) for line in shell("doctor").stdout.splitlines()]
    assert any(line.startswith("ok piglet:one 1.0, user") and line.endswith("would be started") for line in lines)
    assert any(line.startswith("problem") and "runtime is required" in line for line in lines)


# -- what a command shows ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("host.cli.shown")
def test_what_a_command_shows_is_printed(shell: Shell) -> None:
    said = [tell("showMessage", {"text": "one\ntwo"}), tell("notify", {"message": "look", "level": "warn"})]
    write_piglet_guest(home_guests_path(shell), commands={"go": said}, tools={"ping": [*said, piglet_guests.say("pong")]})
    ran = shell("command", "run", "/go")
    assert (ran.stdout, ran.stderr, ran.returncode) == ("[one] one\n[one] two\n", "[one] warn: look\n", 0)
    [form] = parse_objects(shell("command", "run", "go", "--json"))
    assert form == {"action": {"type": "nothing"}, "shown": [{"type": "display", "text": "one\ntwo", "source": "one"}]}
    called = shell("tool", "call", "ping")
    assert (called.stdout, called.stderr) == ("pong\n", "[one] one\n[one] two\n[one] warn: look\n")


def test_a_guest_that_a_name_completes_to_is_of_any_dialect(shell: Shell) -> None:
    write_piglet_guest(home_guests_path(shell), "harbour")
    ran = shell(_SERAI_COMPLETE="bash_complete", COMP_WORDS="serai guest show ha", COMP_CWORD="3")
    assert "harbour" in ran.stdout
