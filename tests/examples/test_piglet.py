"""The extensions of examples/piglet do what they promise, under a host that shares no code with Serai and in Serai itself."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from serai.host import Host
from serai.testing.conformance import checker
from serai.testing.piglet_host.host import PigletHost, Transport
from serai.testing.piglet_host.messages import HostError
from tests.support.cli.run_process import read_result, run, write_prompt
from tests.support.cli.shell import Shell
from tests.support.typescript import copy_runnable

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "piglet"
NAMES = ["by-hand", "sdk", "typescript"]
# What each offers: the methods of its registrations, and the name in each.
OFFERS = {
    "by-hand": [("tool", "tide"), ("command", "logbook"), ("interceptor", "harbour master"), ("eventHandler", "logbook")],
    "sdk": [
        ("tool", "sight"), ("command", "sightings"), ("promptSection", "Lookout"), ("interceptor", "secrets"),
        ("eventHandler", "count"), ("shortcut", "ctrl+l"), ("messageHook", "remind"),
    ],
    "typescript": [("tool", "define"), ("command", "learn"), ("promptSection", "Glossary")],
}  # fmt: skip
# One good call for each, and what it answers.
CALLS: dict[str, tuple[str, dict[str, str], str]] = {
    "by-hand": ("tide", {"harbour": "Bergen"}, "Bergen: the water stands at 364 cm"),
    "sdk": ("sight", {"what": "a sail", "where": "the west"}, "noted as number 1"),
    "typescript": ("define", {"term": "LSP"}, "LSP: Language Server Protocol"),
}

Example = Callable[[str], Path]
every_example = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def python_with_serai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))


@pytest.fixture
def example(tmp_path: Path) -> Example:
    """The folder of an example, such that this machine can run it."""

    def folder(name: str) -> Path:
        return copy_runnable(EXAMPLES / name, tmp_path / name) if name == "typescript" else EXAMPLES / name

    return folder


def list_transports(name: str) -> list[Transport]:
    return ["stdio"] if name == "typescript" else ["fd", "stdio"]  # the last as the origin's TypeScript SDK does


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} >= OFFERS.keys() == CALLS.keys() == {*NAMES}


@every_example
def test_its_manifest_has_the_fields_of_the_spec(name: str) -> None:
    manifest = yaml.safe_load((EXAMPLES / name / "manifest.yaml").read_text())
    assert manifest.keys() == {"name", "version", "description", "runtime", "entry", "capabilities"}
    assert (EXAMPLES / name / manifest["entry"]).is_file()


# -- under the stand-in -----------------------------------------------------------------------------------------------------------


@every_example
def test_it_registers_what_it_offers_and_answers_on_every_way(name: str, example: Example) -> None:
    tool, args, text = CALLS[name]
    for transport in list_transports(name):
        with PigletHost(example(name), transport=transport) as host:
            offered = {
                (kind, params.get("name") or params.get("title") or params.get("key"))
                for kind, _ in OFFERS[name]
                for params in host.registered(f"register/{kind}")
            }
            assert offered == set(OFFERS[name])
            assert host.tool_text(tool, args) == text
            assert (host.shutdown(), host.stderr) == (0, "")


@pytest.mark.slow
@every_example
def test_it_keeps_to_the_protocol(name: str, example: Example) -> None:
    tool, args, _ = CALLS[name]
    report = checker.check(example(name), calls=[(tool, args)])
    assert report.ok, [(finding.rule, finding.why) for finding in report.of("failed")]
    assert not report.of("warned")


def test_the_harbour_master_allows_by_a_word_and_hides_nothing(example: Example) -> None:
    with PigletHost(example("by-hand")) as host:
        assert host.before("harbour master", "bash", {"command": "git push"}) == {"allow": True}
        forced = host.before("harbour master", "bash", {"command": "git push --force origin"})
        assert forced == {"allow": False, "preview": "harbour master: nothing is pushed by force from here"}
        assert host.before("harbour master", "bash", None) == {"allow": True}
        assert host.after("harbour master", "edit", {"files": 1}) == {"details": {"files": 1}}


def test_the_logbook_asks_its_host_and_does_without(example: Example) -> None:
    with PigletHost(example("by-hand")) as host:
        status = host.dispatch("EventToolEnd", {"ToolName": "bash"})
        assert status == {"action": {"type": "setStatus", "payload": {"key": "harbour", "text": "1 calls"}}}
        host.execute_command("logbook")
        assert host.hear("showMessage")["text"].startswith("calls seen: bash; ")
    with PigletHost(example("by-hand"), answers={"host/toolDefs": HostError(-32603, "no app")}) as host:
        host.execute_command("logbook")
        assert host.hear("showMessage") == {"text": "calls seen: none; host/toolDefs: no app"}


def test_the_lookout_publishes_sums_up_reminds_and_guards(example: Example) -> None:
    answers = {"host/chat": {"text": "A sail.", "usage": {"input": 1, "output": 1}}}
    with PigletHost(example("sdk"), answers=answers) as host:
        host.execute_tool("sight", {"what": "a sail"})
        [published] = [message["params"] for message in host.seen if message.get("method") == "host/publish"]
        assert published == {"topic": "lookout:sighting", "data": {"what": "a sail", "where": ""}}
        host.execute_command("sightings")
        assert host.hear("showMessage") == {"text": "1 sighted: A sail."}
        assert host.on_message("anything odd?") == {"injection": "Sighted so far: a sail."}
        assert not host.on_message("hello").get("injection")
        blocked = host.before("secrets", "read", {"path": "app/.env"})
        assert blocked["preview"].startswith("lookout: read may not touch .env")
        assert host.shortcut("ctrl+l")["action"]["payload"] == {"text": "a sail"}


def test_the_glossary_learns_and_registers_anew(example: Example) -> None:
    with PigletHost(example("typescript"), transport="stdio") as host:
        unknown = host.execute_tool("define", {"term": "TCP"})
        assert (unknown["isError"], unknown["errorHint"]) == (True, "known are LSP, NDJSON")
        host.execute_command("learn", "tcp Transmission Control Protocol")
        assert host.hear("showMessage") == {"text": "learned TCP; it knows 3 terms"}
        assert host.tools["define"]["parameters"]["properties"]["term"]["enum"] == ["LSP", "NDJSON", "TCP"]
        assert host.tool_text("define", {"term": "TCP"}) == "TCP: Transmission Control Protocol"


# -- in Serai ---------------------------------------------------------------------------------------------------------------------


async def test_all_of_them_run_in_one_host(example: Example, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SERAI_HOME": str(tmp_path / "home")}
    folders = [example(name) for name in NAMES]
    async with Host.discover(tmp_path, guests=folders, installed=False, environ=environ) as host:
        assert host.report.ok, host.report.to_lines()
        assert [row.id for row in host.report.guests] == ["piglet:harbour", "piglet:lookout", "piglet:glossary"]
        for tool, args, text in CALLS.values():
            assert (await host.call_tool(tool, args)).text == text
        learned = await host.run_command("learn", "TCP Transmission Control Protocol")
        assert not learned.error
        assert (await host.call_tool("define", {"term": "TCP"})).text == "TCP: Transmission Control Protocol"
        assert "may not touch .env" in (await host.call_tool("tide", {"harbour": ".env"})).text


def test_zot_and_piglet_guard_each_others_tools_in_one_run(shell: Shell) -> None:
    guests = [EXAMPLES / "by-hand", ROOT / "examples/zot/weather-python", ROOT / "examples/zot/guard-python"]
    options = [option for guest in guests for option in ("--guest", str(guest))]
    calls = {
        'weather {"city": "Atlantis"}': "harbour master: no ship has come back from Atlantis",  # piglet judges zot's
        'tide {"harbour": "rm -rf /"}': "tide: rm -rf is not run here",  # and zot piglet's
        'weather {"city": "Paris"}': "Bern: 16 degrees, fog",  # rewritten, between two interceptors
        'tide {"harbour": "Bergen"}': "Bergen: the water stands at 364 cm",
        'bash {"command": "git push --force"}': "harbour master: nothing is pushed by force from here",
    }
    for call, text in calls.items():
        ran = run(shell, "--no-ext", *options, "--allow", "weather", "--allow", "tide", "--json", write_prompt(f"call {call}"))
        assert (ran.returncode, read_result(ran)["status"]) == (0, "success"), ran.stderr
        assert text in ran.stdout, call


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def read_readme_commands() -> list[str]:
    text = (EXAMPLES / "README.md").read_text()
    blocks = text.split("```sh\n")[1:]
    return [line for block in blocks for line in block.partition("```")[0].splitlines()]


@pytest.mark.parametrize("line", read_readme_commands())
def test_what_the_readme_says_is_done(line: str, shell: Shell, example: Example) -> None:
    words = shlex.split(line)
    assert words.pop(0) == "serai"
    names = {f"examples/piglet/{name}": name for name in NAMES}
    ran = shell(*(example(names[word]) if word in names else word for word in words), cwd=ROOT)
    assert ran.returncode == (4 if "rm -rf" in line else 0), ran.stderr
    assert ran.stdout or ran.returncode
