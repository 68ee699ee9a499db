"""`serai guest run`, `status` and `restart`: a plugin that really runs, with what it was given (spec yoi 19)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli.shell import Shell, parse_objects
from tests.support.yoi import components
from tests.support.yoi.plugin_manifests import EMPTY, TOOL, parse_report, write_plugin


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """The command in a process of its own."""
    return Shell(tmp_path)


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    return write_plugin(tmp_path / "echo", tools=("echo", "count"), component=components.echo())


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """Its tool reads a file, and it has asked for that."""
    asks = ("surfaces.tool", "tool.call", "host_api.fs")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("hello")
    return write_plugin(
        tmp_path / "reader", tools=("call",), permissions=asks, component=components.caller("fs", "read", components.INPUT)
    )


# -- run --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.093")
def test_run_calls_a_tool_of_a_folder_and_of_a_file(shell: Shell, echo: Path) -> None:
    ran = shell("guest", "run", echo, "echo", '{"text":"hi"}')
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, '{"text":"hi"}'), ran.stderr
    assert shell("guest", "pack", echo).returncode == 0
    form = parse_report(shell("guest", "run", f"{echo}.yoi-plugin", "count", "--json"))
    assert (form["tool"], form["owner"], form["is_error"]) == ("count", "yoi:acme.echo", False)


def test_run_takes_the_tool_world_too(shell: Shell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo", world=TOOL, component=components.tool())
    ran = shell("guest", "run", folder, "echo", "-", input='{"from":"stdin"}')
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, '{"from":"stdin"}'), ran.stderr


@pytest.mark.req("yoi.rule.093")
def test_run_gives_only_what_is_given_here(shell: Shell, reader: Path, tmp_path: Path) -> None:
    """What the settings grant it is for its life in a host, and not for this call."""
    call = ["guest", "run", str(reader), "call", '{"path":"a.txt"}']
    ran = shell(*call, "--fs", f"{tmp_path}/data:read")
    assert ran.returncode == 0, ran.stderr
    assert '"content":"hello"' in ran.stdout.replace(" ", "")
    assert shell("guest", "grant", reader, "--yes", "--fs", f"{tmp_path}/data:read").returncode == 0
    ran = shell(*call)
    assert ran.returncode == 5
    assert "granted host_api.fs permission is missing" in ran.stderr
    ran = shell(*call, "--fs", f"{tmp_path}/data:list")
    assert ran.returncode == 5
    assert "host_api.fs read denied: no matching operation grant" in ran.stderr


def test_run_lets_it_write_elsewhere_only_when_told(shell: Shell, tmp_path: Path) -> None:
    asks = ("surfaces.tool", "tool.echo", "external_write")
    folder = write_plugin(tmp_path / "echo", tools=("echo",), permissions=asks, component=components.echo())
    file = folder / "plugin.toml"
    file.write_text(file.read_text().replace('name = "echo"\ndesc', 'name = "echo"\nexternal_write = true\ndesc'))
    ran = shell("guest", "run", folder, "echo")
    assert ran.returncode != 0
    assert "granted external_write permission is missing" in ran.stderr
    assert shell("guest", "run", folder, "echo", "--external-write").returncode == 0


def test_run_keeps_to_the_bounds_of_the_settings(shell: Shell, tmp_path: Path) -> None:
    """They are no grant: whoever narrows them means this too."""
    folder = write_plugin(tmp_path / "spin", tools=("call",), component=components.spin())
    shell.home.mkdir(exist_ok=True)
    (shell.home / "config.toml").write_text("[plugins.bounds]\ntool = 0.25\n")
    ran = shell("guest", "run", folder, "call")
    assert (ran.returncode, ran.stdout) == (5, ""), ran.stderr
    assert "timed out after 0.25s" in ran.stderr


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["nope"], 1, "has no tool nope"),
        (["echo", "{"], 2, "not JSON"),
        (["echo", "--fs", "/data:read"], 2, "does not ask for host_api.fs"),
        (["echo", "--config", "{"], 2, "not JSON"),
        (["echo", "[]"], 6, ""),
    ],
)
def test_run_says_what_is_wrong(shell: Shell, echo: Path, words: list[str], status: int, said: str) -> None:
    ran = shell("guest", "run", echo, *words)
    assert (ran.returncode, ran.stdout) == (status, "")
    assert said in ran.stderr


def test_run_of_what_is_no_plugin(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "none"):
        ran = shell("guest", "run", path, "echo")
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr.startswith("serai: ")


def test_run_of_one_that_does_not_start(shell: Shell, tmp_path: Path) -> None:
    for component in (EMPTY, components.echo() + b"\7\1\xff"):  # of the wrong world, and with a section that cannot be compiled
        ran = shell("guest", "run", write_plugin(tmp_path / "echo", component=component), "echo")
        assert (ran.returncode, ran.stdout) == (5, "")
        assert "yoi:acme.echo" in ran.stderr


# -- status and restart -----------------------------------------------------------------------------------------------------------

STATUS = {
    "plugin_ref", "lifecycle", "component_status", "queue_depth", "queue_capacity", "last_error", "dispatch_counters",
    "output_command_results", "websocket_connections", "diagnostics", "restarts",
}  # fmt: skip


@pytest.mark.req("yoi.rule.093")
def test_status_starts_it_and_shows_how_it_is(shell: Shell, echo: Path) -> None:
    assert shell("guest", "grant", echo, "--yes").returncode == 0
    form = parse_report(shell("guest", "status", "acme.echo", "--json", "-e", echo))
    assert form.keys() == STATUS
    assert (form["plugin_ref"], form["lifecycle"]) == ("user:acme.echo", "Running")
    ran = shell("guest", "status", "user:acme.echo", "-e", echo)
    assert ran.stdout.startswith("user:acme.echo: Running\n")


@pytest.mark.req("yoi.rule.093")
def test_restart_starts_it_once_more(shell: Shell, echo: Path) -> None:
    assert shell("guest", "grant", echo, "--yes").returncode == 0
    ran = shell("guest", "restart", "acme.echo", "--json", "-e", echo)
    assert ran.returncode == 0, ran.stderr
    assert parse_report(ran)["lifecycle"] == "Running"
    assert "acme.echo reloaded" in ran.stderr
    began = [one for one in parse_objects(shell("record", "show", "--json")) if one.get("frame", {}).get("export") == "start"]
    assert [one["wire"] for one in began] == [1, 2]  # two lives, and `start` in each


def test_show_live_adds_its_status(shell: Shell, echo: Path) -> None:
    assert shell("guest", "grant", echo, "--yes").returncode == 0
    item, status = parse_objects(shell("guest", "show", "acme.echo", "--live", "--json", "-e", echo))
    assert (item["status"], status["lifecycle"]) == ("active", "Running")


def test_list_live_has_it_among_the_others(shell: Shell, echo: Path) -> None:
    assert shell("guest", "grant", echo, "--yes").returncode == 0
    [row] = parse_objects(shell("guest", "list", "--live", "--json", "-e", echo))
    assert (row["id"], row["state"], row["tools"]) == ("yoi:acme.echo", "ready", ["echo", "count"])


def test_one_that_was_not_granted_is_not_started(shell: Shell, echo: Path) -> None:
    for verb in ("status", "restart"):
        ran = shell("guest", verb, "acme.echo", "-e", echo)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert "`serai guest grant`" in ran.stderr


def test_one_that_fails_to_start_has_no_status(shell: Shell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo", component=components.traps("start"))
    assert shell("guest", "grant", folder, "--yes").returncode == 0
    ran = shell("guest", "status", "acme.echo", "-e", folder)
    assert (ran.returncode, ran.stdout) == (5, "")
    assert "plugin instance startup failed closed" in ran.stderr


def test_one_that_fails_later_says_so(shell: Shell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo", component=components.traps("status"))
    assert shell("guest", "grant", folder, "--yes").returncode == 0
    ran = shell("guest", "status", "acme.echo", "--json", "-e", folder)
    assert ran.returncode == 5
    form = parse_report(ran)
    assert form["lifecycle"] == "Failed"
    assert form["last_error"]


# -- wit --------------------------------------------------------------------------------------------------------------------------


def test_wit_prints_and_writes_both_packages(shell: Shell, tmp_path: Path) -> None:
    ran = shell("guest", "wit")
    assert "package yoi:plugin@1.0.0;" in ran.stdout
    assert "package yoi:host@1.0.0;" in ran.stdout
    assert shell("guest", "wit", "--into", tmp_path / "a" / "wit").returncode == 0
    files = {str(path.relative_to(tmp_path / "a" / "wit")): path.read_text() for path in (tmp_path / "a").rglob("*.wit")}
    assert files == parse_report(shell("guest", "wit", "--json"))["files"]
    assert any("world instance" in text for text in files.values())
