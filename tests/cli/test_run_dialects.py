"""A zot guest and a piglet guest in one run: each judges the other's tools, and both hear what happens; and piglet alone."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from serai.model.events import ToolEnded
from tests.support.agents.scripted_models import Answers, call, reply
from tests.support.app.apps import Person, open_app
from tests.support.cli.run_process import run, write_prompt
from tests.support.cli.shell import Shell
from tests.support.host.zot_guests import make
from tests.support.piglet.journals import ONE_LOOP, read_messages, read_params
from tests.support.piglet.raw_guests import write_bare_guest
from tests.support.piglet_guests.guest_folder import interceptor, offer, write
from tests.support.piglet_guests.steps import ask, note, relay

PROMPTLY = 60.0  # what would wait for itself waits for ever

# Both leave their mark on every call, block what leads to Atlantis and rewrite what leads to Paris, each for the tool of the other.
ZOT = """
heard = open("heard", "a", buffering=1)
hello(
    tool("forecast"),
    subscribe(events=["turn_start", "tool_call", "assistant_message", "turn_end"], intercept=["tool_call"]),
)
for frame in frames():
    if frame["type"] == "tool_call":
        answer(frame["id"], "forecast " + json.dumps(frame["args"], sort_keys=True))
    elif frame["type"] == "event_intercept":
        args = frame["tool_args"]
        heard.write(json.dumps(["judged", frame["tool_name"], args]) + "\\n")
        if frame["tool_name"] == "tide" and args.get("to") == "Atlantis":
            judge(frame["id"], block=True, reason="zot: nobody sails to Atlantis")
        else:
            to = "Bern" if frame["tool_name"] == "tide" and args.get("to") == "Paris" else args.get("to")
            judge(frame["id"], modified_args={**args, "to": to, "trail": [*args.get("trail", []), "zot"]})
    elif frame["type"] == "event":
        heard.write(json.dumps(["told", frame["event"]]) + "\\n")
"""
PIGLET = """
heard = open("heard", "a", buffering=1)

def register(kind, **params):
    return {"jsonrpc": "2.0", "method": "register/" + kind, "params": params}

def result(id, value):
    return {"jsonrpc": "2.0", "id": id, "result": value}

def reply(m):
    p = m.get("params") or {}
    if m["method"] == "tool/execute":
        return answer(m["id"], "tide " + json.dumps(p["args"], sort_keys=True))
    if m["method"] == "interceptor/before":
        args = p["args"] or {}
        heard.write(json.dumps(["judged", p["toolName"], args, p["name"]]) + "\\n")
        if p["toolName"] == "forecast" and args.get("to") == "Atlantis":
            return result(m["id"], {"allow": False, "preview": "piglet: no weather in Atlantis"})
        to = "Bern" if p["toolName"] == "forecast" and args.get("to") == "Paris" else args.get("to")
        return result(m["id"], {"allow": True, "args": {**args, "to": to, "trail": [*args.get("trail", []), p["name"]]}})
    if m["method"] == "interceptor/after":
        return result(m["id"], {"details": p.get("details")})
    heard.write(json.dumps(["told", p["type"]]) + "\\n")
    return result(m["id"], {})

offers = [tool("tide"), register("interceptor", name="low", priority=-5), register("interceptor", name="high", priority=500),
    register("eventHandler", name="all")]
for m in lines(3):
    if m["method"] == "initialize":
        say(4, *offers, hello())
    elif "id" in m:
        say(4, reply(m))
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def guests(tmp_path: Path) -> tuple[str | Path, ...]:
    return ("-e", make(tmp_path, ZOT, name="harbour"), "-e", write_bare_guest(tmp_path, PIGLET, name="pilot"))


def read_log(tmp_path: Path, name: str, what: str) -> list[Any]:
    lines = map(json.loads, (tmp_path / name / "heard").read_text().splitlines())
    return [line[1:] for line in lines if line[0] == what]


@pytest.mark.req("piglet.rule.order-interceptors", "app.run.guests")
def test_each_judges_the_others_calls_in_the_order_of_their_priorities(shell: Shell, guests: Any, tmp_path: Path) -> None:
    calls = write_prompt('call forecast {"to":"Paris"}', 'call tide {"to":"Paris"}', "say $results")
    ran = run(shell, *guests, "--allow", "forecast", "--allow", "tide", calls)
    assert ran.returncode == 0, ran.stderr
    marks = '"trail": ["high", "zot", "low"]'
    assert f'forecast {{"to": "Bern", {marks}}}' in ran.stdout  # piglet has rewritten a call of zot's tool
    assert f'tide {{"to": "Bern", {marks}}}' in ran.stdout  # and zot one of piglet's
    for tool in ("forecast", "tide"):
        [seen] = [args["trail"] for name, args in read_log(tmp_path, "harbour", "judged") if name == tool]
        assert seen == ["high"]
        trails = [(who, args.get("trail")) for name, args, who in read_log(tmp_path, "pilot", "judged") if name == tool]
        assert trails == [("high", None), ("low", ["high", "zot"])]


@pytest.mark.req("app.run.guard")
def test_each_blocks_a_call_of_the_others_tool(shell: Shell, guests: Any, tmp_path: Path) -> None:
    calls = write_prompt('call forecast {"to":"Atlantis"}', 'call tide {"to":"Atlantis"}', "say $results")
    ran = run(shell, *guests, "--mode", "skip", calls)
    assert ran.returncode == 0, ran.stderr
    assert "piglet: no weather in Atlantis" in ran.stdout
    assert "zot: nobody sails to Atlantis" in ran.stdout
    assert "trail" not in ran.stdout  # neither has run
    assert [name for name, _ in read_log(tmp_path, "harbour", "judged")] == ["tide"]  # whoever is asked later is not asked at all
    assert sorted((name, who) for name, _, who in read_log(tmp_path, "pilot", "judged")) == [("forecast", "high"), ("tide", "high")]


@pytest.mark.req("app.run.rules")
@pytest.mark.parametrize("tool", ["forecast", "tide"])
@pytest.mark.parametrize("to", ["Bern", "Paris"])
def test_the_policy_decides_on_the_final_arguments(shell: Shell, guests: Any, tmp_path: Path, tool: str, to: str) -> None:
    """Allowed is what leads to Paris; each has rewritten that by the time the rules are asked."""
    rules = tmp_path / "rules.toml"
    rules.write_text(f'[[rule]]\nid = "only"\ndecide = "allow"\ntool = "{tool}"\ninput = {{ to = "{to}", "*" = "*" }}\n')
    ran = run(shell, *guests, "--policy", rules, write_prompt(f'call {tool} {{"to":"Paris"}}', "say $results"))
    assert ('"to": "Bern"' in ran.stdout) is (to == "Bern")
    assert ("nobody is there" in ran.stdout + ran.stderr) is (to == "Paris")


@pytest.mark.req("app.run.rules")
def test_a_rule_that_forbids_what_a_guest_makes_of_a_call_holds(shell: Shell, guests: Any, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nid = "no-bern"\ndecide = "deny"\ntool = "*"\ninput = { to = "Bern" }\nbecause = "Bern is closed"\n')
    calls = write_prompt('call forecast {"to":"Paris"}', 'call tide {"to":"Paris"}', "say $results")
    ran = run(shell, *guests, "--mode", "skip", "--policy", rules, calls)
    assert ran.stdout.count("Bern is closed") == 2
    assert "trail" not in ran.stdout


@pytest.mark.req("app.run.guests", "piglet.rule.event-types")
def test_both_hear_what_happens(shell: Shell, guests: Any, tmp_path: Path) -> None:
    calls = write_prompt('call forecast {"to":"Bern"}', 'call tide {"to":"Bern"}', "say done")
    ran = run(shell, *guests, "--mode", "skip", calls)
    assert (ran.stdout, ran.returncode) == ("done\n", 0)
    zot = [event for [event] in read_log(tmp_path, "harbour", "told")]
    assert (zot.count("tool_call"), zot.count("assistant_message"), zot[0], zot[-1]) == (2, 2, "turn_start", "turn_end")
    piglet = [type for [type] in read_log(tmp_path, "pilot", "told") if type != "EventStreamDelta"]
    start = ["EventAgentStart", "EventAgentInit", "EventPromptBuild", "EventMessagePre"]
    first = ["EventTurnStart", "EventStreamDone"]
    tools = ["EventToolStart", "EventToolEnd"]
    assert piglet[:6] == start + first
    assert sorted(piglet[6:10]) == sorted(tools * 2)  # side by side
    assert piglet[10:] == ["EventTurnEnd", *first, "EventTurnEnd", "EventAgentEnd"]


# -- one source


SOURCE = """
from pathlib import Path
from serai.sdk import Block, Extension, Rewrite, ToolCall

me = Path.cwd().name
ext = Extension(me, version="1.0")

@ext.tool(f"{me}_weather")
def weather(city: str) -> str:
    "The weather."
    return f"{city}: fog, says {ext.host.dialect}"

@ext.command(f"{me}_hello", "says hello")
def hello(args: str) -> str:
    return f"hello {args} from {ext.host.dialect}"

@ext.intercept("tool_call")
def judge(call: ToolCall) -> Block | Rewrite:
    if call.args.get("city") == me:
        return Block(f"{me} does not judge itself")
    return Rewrite({**call.args, "city": f"{call.args['city']}+{me}"})

ext.main()
"""


def write_guests(tmp_path: Path) -> tuple[Path, Path]:
    """The same file in a folder of each dialect."""
    zot, piglet = tmp_path / "east", tmp_path / "west"
    for folder in (zot, piglet):
        folder.mkdir()
        (folder / "guest.py").write_text(SOURCE)
    (zot / "extension.json").write_text(json.dumps({"name": "east", "exec": sys.executable, "args": ["guest.py"]}))
    about = {"name": "west", "runtime": sys.executable, "entry": "guest.py"}
    (piglet / "manifest.yaml").write_text(json.dumps(about))
    return zot, piglet


@pytest.mark.slow
@pytest.mark.req("app.run.guests")
def test_one_source_is_a_guest_of_each_dialect_in_one_run(shell: Shell, tmp_path: Path) -> None:
    zot, piglet = write_guests(tmp_path)
    guests = ("-e", zot, "-e", piglet, "--mode", "skip")
    calls = write_prompt('call east_weather {"city":"Bern"}', 'call west_weather {"city":"Bern"}', "say $results")
    ran = run(shell, *guests, calls)
    assert ran.returncode == 0, ran.stderr
    assert "Bern+east+west: fog, says zot" in ran.stdout
    assert "Bern+east+west: fog, says piglet" in ran.stdout
    for name in ("east", "west"):
        blocked = run(shell, *guests, write_prompt(f'call east_weather {{"city":"{name}"}}', "say $results"))
        assert ("does not judge itself" in blocked.stdout) is (name == "east")  # the other has changed it by then
    assert "hello you from zot" in run(shell, *guests, "/east_hello you").stdout
    assert "hello you from piglet" in run(shell, *guests, "/west_hello you").stdout


# -- calls that lead to calls


@ONE_LOOP
async def test_a_piglet_tool_may_call_a_zot_tool_and_both_judge_that(tmp_path: Path) -> None:
    folders = make(tmp_path, ZOT, name="harbour"), write_bare_guest(tmp_path, PIGLET, name="pilot")
    caller = write(tmp_path, "caller", tools={"host": [relay()]})
    async with open_app(tmp_path, *folders, caller) as app:
        asked = {"method": "host/executeTool", "params": {"name": "forecast", "args": {"to": "Paris"}}}
        answer = json.loads((await app.host.call_tool("host", asked)).text)
        [block] = answer["result"]["content"]
        assert block["text"] == 'forecast {"to": "Bern", "trail": ["high", "zot", "low"]}'
        asked["params"] = {"name": "forecast", "args": {"to": "Atlantis"}}
        answer = json.loads((await app.host.call_tool("host", asked)).text)
        assert answer == {"result": {"content": [{"type": "text", "text": "piglet: no weather in Atlantis"}]}}
        asked["params"] = {"name": "tide", "args": {"to": "Atlantis"}}
        answer = json.loads((await app.host.call_tool("host", asked)).text)
        assert (answer["result"]["isError"], answer["result"]["content"][0]["text"]) == (True, "zot: nobody sails to Atlantis")


@pytest.mark.req("app.services.bounded")
@ONE_LOOP
async def test_one_that_judges_by_calling_what_it_judges_comes_to_an_end(tmp_path: Path) -> None:
    """Each judgement wants the tool called, and each call a judgement."""
    journal = tmp_path / "journal"
    judges = interceptor(before=[ask("host/executeTool", {"name": "look", "args": {}}, quiet=True)])
    folder = write(tmp_path, "judge", tools={"look": "fog"}, interceptors={"guard": judges}, journal=journal)
    person, model = Person(), Answers([reply("", call("look"))], [reply("done")])
    async with open_app(tmp_path, folder, answers=model, surface=person) as app, asyncio.timeout(PROMPTLY):
        result = await app.submit("go")
        assert result is not None
        assert result.text == "done"
        [ended] = [one.result for one in person.events if isinstance(one, ToolEnded)]
        assert ended.text == "fog"  # the innermost was refused, so all others came to an end
        assert not app.works_for("piglet:judge")
    came_back = [json.loads(line).get("in", {}) for line in journal.read_text().splitlines()]
    [refused] = [message["error"]["message"] for message in came_back if "error" in message]
    assert refused.endswith("64 calls of tools are under way for it: does a call of look lead to itself?")
    assert len(read_messages(journal, "interceptor/before")) == 65


# Looks at a forecast by asking the same guest for its second tool, and tells the model both.
LOOKS = """
def register(kind, **params):
    return {"jsonrpc": "2.0", "method": "register/" + kind, "params": params}

judging = None
for m in lines(3):
    if m.get("method") == "initialize":
        say(4, register("interceptor", name="looks"), hello())
    elif m.get("method") == "interceptor/before":
        say(4, {"id": m["id"], "result": {"allow": True}})
    elif m.get("method") == "interceptor/after" and m["params"]["toolName"] == "forecast":
        judging = m
        say(4, {"id": 1, "method": "host/executeTool", "params": {"name": "tide", "args": {}}})
    elif m.get("method") == "interceptor/after":
        say(4, {"id": m["id"], "result": {"details": m["params"]["details"]}})
    elif m.get("id") == 1 and "result" in m:
        say(4, {"id": judging["id"], "result": {"details": {"output": "and " + m["result"]["content"][0]["text"]}}})
"""
SERVES = """
hello(tool("forecast"), tool("tide"))
for frame in frames():
    if frame["type"] == "tool_call":
        answer(frame["id"], frame["name"])
"""


@pytest.mark.req("piglet.fix.14")
@ONE_LOOP
async def test_who_looks_at_a_result_may_call_its_owner_which_takes_one_call_at_a_time(tmp_path: Path) -> None:
    """zot's turns are for calls, and a result that is looked at is none any more."""
    folders = make(tmp_path, SERVES, name="harbour"), write_bare_guest(tmp_path, LOOKS, name="pilot")
    person, model = Person(), Answers([reply("", call("forecast"))], [reply("done")])
    async with open_app(tmp_path, *folders, answers=model, surface=person) as app, asyncio.timeout(PROMPTLY):
        assert (await app.submit("go")) is not None
        [ended] = [one.result for one in person.events if isinstance(one, ToolEnded)]
        assert ended.text == "and tide"


@pytest.mark.req("piglet.fix.17")
def test_a_one_shot_run_ends_when_its_last_event_was_answered(tmp_path: Path) -> None:
    done, journal = tmp_path / "done", tmp_path / "journal"
    slowly = [ask("host/lastAssistantText"), ask("host/extensionsDir"), note(done)]
    folder = write(tmp_path, "meter", handlers={"last": offer(slowly, events=["EventAgentEnd"])}, journal=journal)
    ran = run(Shell(tmp_path), "--guest", folder, "hello")
    assert (ran.returncode, ran.stdout) == (0, "You said: hello\n")
    assert done.exists()
    assert [one["type"] for one in read_params(journal, "event/dispatch")] == ["EventAgentEnd"]
    assert read_messages(journal)[-1]["method"] == "shutdown"
