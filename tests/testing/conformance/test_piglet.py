"""The conformance kit for piglet: each broken guest is found by the rule that it breaks, and the good ones pass."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
import pytest
from click.testing import CliRunner

from serai.cli.guest_authoring import check
from serai.testing.conformance import checker
from serai.testing.conformance.findings import Patience, Report
from tests.requirements import manifest as requirements
from tests.support import piglet_guests
from tests.support.conformance_reports import find_rules
from tests.support.piglet_guests.guest_folder import interceptor, offer, write
from tests.support.piglet_guests.steps import ask, crash, delta, fault, say, tell, throw, wait

RULES = [rule.name for rule in checker.rules("piglet")]
CITY = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
# For what has to happen: generous, so that a busy machine does not turn it into something else.
PATIENT = Patience(
    hello=30, ready=30, answer=30, tool=30, command=30, intercept=30, hold=0.05, idle=0.05, shutdown=30, terminate=30, leave=30
)
USUAL: Mapping[str, Any] = {
    "tools": {"weather": offer("$city: 16 degrees", parameters=CITY)},
    "commands": {"forecast": "3 stations"},
}
EVERYTHING: Mapping[str, Any] = {
    **USUAL,
    "sections": {"Units": "Use metric."},
    "interceptors": {"guard": interceptor(priority=2000)},
    "handlers": {"meter": offer("a turn", events=["EventTurnEnd"]), "all": []},
    "shortcuts": {"ctrl+g": "refreshed"},
    "hooks": {"clock": "It is noon."},
    "transformers": {"alias": "$input"},
    "compactor": "Summary.",
    "providers": {"acme": [delta("Hel"), say("lo")]},
    "at_init": [ask("host/config.get", {"keys": ["defaultModel"]})],
}
HEAD = f"""#!{sys.executable} -SE
import json, os, signal, subprocess, sys, threading, time
sys.path.insert(0, {str(Path(piglet_guests.__file__ or "").parents[3])!r})
from tests.support.piglet_guests.programs.handler_run import Refused
from tests.support.piglet_guests.programs.go_sdk import GoGuest, main

class Broken(GoGuest):
"""
LINES = """
    def __init__(self, *given):
        super().__init__(*given)
        lines = self.connection._lines
        self.connection._lines = lambda: map(self.looked_at, lines())

    def looked_at(self, line):
        {0}
        return line
"""
SERVE = """
    def _serve(self, message, cancelled):
        {0}
        super()._serve(message, cancelled)
"""
CHILD = "subprocess.Popen([sys.executable, '-S', '-c', 'import signal; signal.pause()'], stdin=-3, stdout=-3, stderr=-3)"


class Broken(NamedTuple):
    """What it does besides the usual, or otherwise than a good one, and which rules find it."""

    failed: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    does: Mapping[str, Any] = {}
    body: str = ""
    waits: Mapping[str, float] = {}


def offer_tool(**params: Any) -> Mapping[str, Any]:
    return {"tools": {"weather": offer("fog", **params)}}


TABLE = {
    # The manifest.
    "nameless": Broken(("manifest",), does={"manifest": {"name": ""}}),
    "no-runtime": Broken(("manifest",), does={"manifest": {"runtime": None}}),
    "no-program": Broken(("manifest",), does={"runtime": "./nothing"}),
    "no-interpreter": Broken(("manifest",), does={"runtime": "bun", "entry": "main.ts"}),
    # The handshake.
    "crashes": Broken(("handshake",), does={"at_start": [crash()]}),
    "refuses": Broken(("handshake",), does={"initialize": [throw("no luck")]}),
    "mute": Broken(("handshake",), does={"initialize": [wait()]}, waits={"hello": 0.7}),
    "does-not-stay": Broken(("handshake",), does={"after_init": [crash()]}, waits={"hold": 30.0}),
    "closes-its-wire": Broken(("handshake",), does={"after_init": [fault("close-wire")]}, waits={"shutdown": 0.5, "hold": 30.0}),
    # What it says.
    "prose": Broken(("stdout",), does={"at_init": [fault("prose")]}),
    "batch": Broken(("stdout",), does={"at_init": [fault("batch")]}),
    "prints": Broken(warned=("stdout",), does={"at_init": [fault("stdout", text="starting up\n")]}),
    "long-line": Broken(("frames",), does={"at_init": [fault("long-line")]}),
    "empty-name": Broken(("frames",), does={"at_init": [fault("empty-name")]}),
    "bad-registration": Broken(("frames",), does={"at_init": [fault("bad-registration")]}),
    "float-id": Broken(("frames",), does={"at_init": [fault("float-id")]}),
    "unknown-notice": Broken(warned=("frames",), does={"at_init": [tell("dance", {"steps": 3})]}),
    "unknown-request": Broken(warned=("frames",), does={"at_init": [ask("host/dance")]}),
    "bad-params": Broken(("frames",), does={"at_init": [ask("host/chat", {"messages": "hi"})]}),
    "stranger": Broken(("answers",), does={"at_init": [fault("stranger", ids=[999999, "nobody"])]}),
    "bad-schema": Broken(("registrations",), does=offer_tool(parameters={"type": "objekt"})),
    "no-schema": Broken(warned=("registrations",), does=offer_tool(parameters=None)),
    "odd-tool-name": Broken(warned=("registrations",), does={"tools": ["the weather"]}),
    "built-in": Broken(warned=("registrations",), does={"tools": ["read"]}),
    "odd-command-name": Broken(("registrations",), does={"commands": ["a b"]}),
    "odd-key": Broken(("registrations",), does={"shortcuts": ["G"]}),
    "twice-registered": Broken(warned=("registrations",), does={"at_init": [tell("register/command", {"name": "forecast"})]}),
    "late": Broken(warned=("in-time",), does={"late": ["forecast"]}),
    # What it answers.
    "twice": Broken(
        ("answers",), body=SERVE.format("message['id'] == 1 or super()._serve(message, cancelled)"), waits={"idle": 1.0}
    ),
    "agrees": Broken(("unknown-names",), body="    def execute_tool(self, params, act): return {'content': []}"),
    "ignores-unknown": Broken(
        ("unknown-methods",), body=SERVE.format("if message['method'] not in self.methods: return"), waits={"answer": 4.0}
    ),
    "trusting": Broken(
        ("odd-arguments",),
        body=SERVE.format("p = message.get('params'); p.get('name') == 'weather' and (p['args'] or os._exit(1)).get('city')"),
        waits={"answer": 4.0},
    ),
    "no-allow": Broken(("intercept",), does={"interceptors": {"guard": interceptor(before={"args": {}})}}),
    "throwing-guard": Broken(("intercept",), does={"interceptors": {"guard": interceptor(before=[throw("no")])}}),
    "deaf-guard": Broken(("intercept",), does={"interceptors": {"guard": interceptor(after=[wait()])}}, waits={"intercept": 1.0}),
    "dies-of-events": Broken(("events",), does={"handlers": {"meter": [crash()]}}),
    "throws-at-events": Broken(warned=("events",), does={"handlers": {"meter": [throw("no")]}}),
    "odd-action": Broken(("events",), does={"handlers": {"meter": {"action": "quit"}}}),
    "odd-injection": Broken(
        ("hooks",), does={"hooks": {"clock": {"injection": 7}}}, body="    on_message = lambda self, p, a: {'injection': 7}"
    ),
    "throwing-transformer": Broken(("hooks",), does={"transformers": {"alias": [throw("no")]}}),
    # What it lives through.
    "idles-out": Broken(("idle",), body=LINES.format("signal.alarm(2)"), waits={"idle": 30.0}),
    "wants-config": Broken(
        ("optional-fields",),
        body="    def initialize(self, params, act): params['configDir']; return super().initialize(params, act)",
    ),
    "wants-services": Broken(
        ("poor-host",),
        body="""
    def initialize(self, params, act):
        if "error" in act.ask("host/sessions", {}):
            raise Refused(-32603, "no sessions")
        return super().initialize(params, act)
""",
    ),
    "no-zero": Broken(("any-json",), body=SERVE.format("if message['id'] == 0: return"), waits={"answer": 4.0}),
    "only-json": Broken(("not-json",), body=LINES.format("json.loads(line)")),
    "only-known": Broken(
        ("unknown-frames",), body="    def notified(self, method, params): method == 'serai/check' and os._exit(3)"
    ),
    "short-lines": Broken(("oversize",), body=LINES.format("len(line) > 1000000 and os._exit(1)")),
    "hangs-at-long-lines": Broken(
        ("oversize",), body=LINES.format("len(line) > 4194200 and signal.pause()"), waits={"answer": 4.0}
    ),
    "forty-at-most": Broken(("burst",), body=SERVE.format("if 40 < message['id'] < 100: return"), waits={"answer": 4.0}),
    "dies-of-cancel": Broken(("cancel", "unknown-frames"), body="    def cancel(self, id): os._exit(3)"),
    # How it ends.
    "exit-status": Broken(
        warned=("shutdown", "shutdown-request"),
        body="    def run(self): exit = os._exit; os._exit = lambda code: exit(code or 3); super().run()",
    ),
    "no-shutdown-request": Broken(
        warned=("shutdown-request",),
        body="    def checked(self, method, params): self.methods.pop('shutdown', None); return params",
    ),
    "stubborn": Broken(
        ("shutdown", "open-requests", "end-of-input", "host-gone", "terminate"),
        does={"at_init": [fault("stubborn")]},
        waits={"shutdown": 1.0, "terminate": 0.5},
    ),
    "ignores-term": Broken(("terminate",), body="    def _terminated(self, number, frame): pass", waits={"terminate": 0.5}),
    "leaves-a-child": Broken(("left-behind",), body=f"    def run(self): {CHILD}; super().run()", waits={"leave": 0.2}),
}
# What is wrong there shows in no frame.
WITHOUT_FRAMES = {"manifest", "left-behind", "poor-host", "handshake"}


def write_broken_guest(place: Path, name: str) -> Path:
    broken = TABLE[name]
    folder = write(place, name, **{**USUAL, **broken.does})
    if broken.body:
        (folder / "guest").write_text(f"{HEAD}{broken.body}\n\nmain(__file__, Broken)\n")
    return folder


def run_check(path: Path, **options: Any) -> Report:
    return checker.check(path, **{"patience": PATIENT, **options})


# -- the broken and the good ------------------------------------------------------------------------------------------------------


def test_every_rule_is_broken_by_somebody() -> None:
    assert {rule for broken in TABLE.values() for rule in (*broken.failed, *broken.warned)} == set(RULES)
    known = {requirement.id for requirement in requirements.load_all()}
    assert {id for rule in checker.rules("piglet") for id in rule.requirements} <= known


@pytest.mark.slow
@pytest.mark.req("piglet.check.broken")
@pytest.mark.parametrize("name", TABLE)
def test_a_broken_guest_is_found_by_the_rule_that_it_breaks_and_by_no_other(tmp_path: Path, name: str) -> None:
    broken = TABLE[name]
    report = run_check(write_broken_guest(tmp_path, name), patience=replace(PATIENT, **broken.waits))
    assert (find_rules(report, "failed"), find_rules(report, "warned")) == (set(broken.failed), set(broken.warned)), str(report)
    for finding in report.of("failed", "warned"):
        assert finding.why
        assert finding.hint
        assert finding.frames or finding.rule in WITHOUT_FRAMES
        assert all(frame[:2] in ("→ ", "← ") for frame in finding.frames)


@pytest.mark.req("piglet.check.good")
@pytest.mark.parametrize("stdio", [False, True])
def test_a_good_guest_passes_every_rule(tmp_path: Path, stdio: bool) -> None:
    path = write(tmp_path, "weather", stdio=stdio, **EVERYTHING)
    report = run_check(path, calls={"weather": {"city": "Bern"}}, commands=["forecast  Bern   3"])
    assert find_rules(report, "passed") == set(RULES), str(report)
    assert list(report.rules()) == RULES
    [handshake] = [finding for finding in report.findings if finding.rule == "handshake"]
    assert handshake.why == f"it answers initialize on {'stdin and stdout' if stdio else 'FD 3 and 4'}, in time, and stays"


@pytest.mark.req("piglet.check.good")
def test_a_guest_of_the_typescript_sdk_passes(tmp_path: Path) -> None:
    report = run_check(write(tmp_path, "weather", sdk="typescript", sections={"Units": "Use metric."}, **USUAL))
    assert find_rules(report, "failed") == find_rules(report, "warned") == set(), str(report)


def test_a_guest_that_offers_nothing_passes(tmp_path: Path) -> None:
    report = run_check(write(tmp_path, "weather"))
    assert find_rules(report, "failed") == find_rules(report, "warned") == set(), str(report)


def test_the_manifest_says_on_which_descriptors_it_speaks(tmp_path: Path) -> None:
    path = write(tmp_path, "weather", sdk="typescript", manifest={"transport": "fd"})
    assert find_rules(run_check(path, only=["handshake"]), "failed") == {"handshake"}
    path = write(tmp_path, "weather", manifest={"transport": "stdio"})
    [finding] = run_check(path, only=["handshake"]).findings
    assert "on stdin and stdout" in finding.why


SLOW = """
    def execute_tool(self, params, act):
        with lock:
            params["name"] == "slow" and time.sleep(0.5)
            return super().execute_tool(params, act)

lock = threading.Lock()
"""


@pytest.mark.req("piglet.check.broken")
def test_a_guest_that_serves_one_at_a_time_is_found(tmp_path: Path) -> None:
    folder = write(tmp_path, "weather", tools=["slow"])
    (folder / "guest").write_text(f"{HEAD}{SLOW}\nmain(__file__, Broken)\n")
    report = run_check(folder, only=["open-requests"], calls={"slow": {}}, patience=replace(PATIENT, answer=0.3))
    assert find_rules(report, "failed") == {"open-requests"}, str(report)


# -- harmless ---------------------------------------------------------------------------------------------------------------------


def record_requests(tmp_path: Path, **options: Any) -> list[tuple[str, Any]]:
    """What a guest was asked, while it was checked."""
    journal = tmp_path / "journal"
    tools = {"deploy": [], "erase": offer([], parameters=CITY)}
    path = write(tmp_path, "weather", **{**EVERYTHING, "tools": tools, "journal": journal})
    run_check(path, **options)
    said = [json.loads(line) for line in journal.read_text().splitlines()]
    return [(each["in"]["method"], each["in"].get("params")) for each in said if each.get("in", {}).get("method")]


@pytest.mark.req("piglet.check.harmless")
def test_nothing_is_done_for_real_unless_it_is_given(tmp_path: Path) -> None:
    asked = record_requests(tmp_path)
    assert not {"shortcut/handle", "provider/stream"} & {method for method, _ in asked}
    calls = [params for method, params in asked if method == "tool/execute"]
    assert {params["name"] for params in calls} == {"serai_check_no_such_name", "erase"}
    assert not [params for params in calls if params["name"] == "erase" and jsonschema_rs.is_valid(CITY, params["args"])]
    assert {params["name"] for method, params in asked if method == "command/execute"} == {"serai_check_no_such_name"}


@pytest.mark.req("piglet.check.harmless")
def test_what_is_given_is_done(tmp_path: Path) -> None:
    asked = record_requests(tmp_path, calls={"deploy": {"where": "here"}}, commands=["/forecast  Bern   3"])
    assert [params["args"] for method, params in asked if method == "tool/execute"].count({"where": "here"}) >= 12
    assert ("command/execute", {"name": "forecast", "args": "Bern 3"}) in asked


@pytest.mark.req("piglet.check.harmless")
def test_a_guest_under_check_gets_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "not for you")
    told = tmp_path / "told"
    folder = write(tmp_path, "weather", at_init=[ask("host/auth.getKey", {"provider": "acme"})], journal=tmp_path / "journal")
    program = (folder / "guest").read_text()
    (folder / "guest").write_text(
        program.replace("main(__file__)", f"import os\nopen({str(told)!r}, 'w').write(repr(os.environ))\nmain(__file__)")
    )
    run_check(folder, only=["handshake"])
    assert "ACME_API_KEY" not in told.read_text()
    answers = [json.loads(line).get("in", {}).get("result") for line in (tmp_path / "journal").read_text().splitlines()]
    assert {"key": ""} in answers


# -- as a person calls it ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.req("piglet.check.good", "piglet.check.broken")
def test_the_command_picks_the_rules_by_the_manifest(tmp_path: Path) -> None:
    good, bad = write(tmp_path, "weather", **USUAL), write_broken_guest(tmp_path, "refuses")
    result = CliRunner().invoke(check, [str(good), "--json"], catch_exceptions=False)
    *findings, last = [json.loads(line) for line in result.stdout.splitlines()]
    assert [finding["rule"] for finding in findings] == RULES
    assert (last["summary"]["dialect"], last["summary"]["ok"], result.exit_code) == ("piglet", True, 0)
    result = CliRunner().invoke(check, [str(bad / "manifest.yaml"), "--rule", "handshake"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "failed   handshake  it answers initialize with an error: " in result.stdout
    assert "no luck" in result.stdout
    assert os.path.exists(bad)


# -- the SDK ----------------------------------------------------------------------------------------------------------------------

SDK = """
from serai.sdk import Allow, Block, Extension

ext = Extension("weather", version="1.0")

@ext.tool
async def weather(city: str, days: int = 1) -> str:
    "The weather in a city."
    return f"{city}: fog for {days} days"

@ext.command("tide", "next high water")
def tide(args: str) -> str:
    return f"{args}: 12:40"

@ext.on("turn_end")
def ended(event) -> None:
    print(event.stop)

@ext.intercept("tool_call")
def judge(call) -> Allow | Block:
    return Block("no") if call.name == "bash" else Allow()

ext.main()
"""


@pytest.mark.slow
@pytest.mark.req("piglet.check.good")
@pytest.mark.parametrize("transport", ["fd", "stdio"])
def test_a_guest_made_with_the_sdk_passes_every_rule(tmp_path: Path, transport: str) -> None:
    folder = write(tmp_path, "weather", runtime=sys.executable, entry="main.py", manifest={"transport": transport})
    (folder / "main.py").write_text(SDK)
    report = run_check(folder, calls={"weather": {"city": "Bern"}}, commands=["tide Husum"])
    assert find_rules(report, "failed") == find_rules(report, "warned") == set(), str(report)
    assert find_rules(report, "skipped") == {"hooks", "poor-host"}


LATE_QUESTION = """
import json, os

host, us = os.fdopen(3, "rb"), os.fdopen(4, "w", buffering=1)

def send(**message):
    us.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")

for line in host:
    try:
        ask = json.loads(line)
        id, method = ask.get("id"), ask.get("method")
    except (ValueError, RecursionError, AttributeError):
        continue
    if id is None or not method:
        continue
    if method == "initialize":
        send(id=id, result={"name": "late", "version": "1"})
    elif method == "shutdown":
        send(id=id, result=None)
        break
    else:
        send(id=id, error={"code": -32601, "message": "unknown method"})
send(id=1, method="host/publish", params={"topic": "late", "data": "farewell"})
"""


@pytest.mark.slow
def test_a_guest_whose_last_word_is_a_question_passes(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text("name: late\nversion: '1'\nruntime: python\nentry: late.py\n")
    (tmp_path / "late.py").write_text(LATE_QUESTION)
    report = checker.check(tmp_path)
    assert report.ok, [(finding.rule, finding.why) for finding in report.of("failed")]
