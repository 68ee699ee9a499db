"""The conformance kit finds what is wrong with each of the broken guests, by the rule that it breaks, and passes the good ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.errors import NoGuest
from serai.testing.conformance import checker
from serai.testing.conformance.findings import Finding, Patience, Report
from serai.testing.conformance.probe import compact
from serai.testing.conformance.zot.rules import FORMS
from tests.requirements import manifest
from tests.support.conformance_reports import find_rules
from tests.support.needs import require
from tests.support.processes import lives

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(path for path in (ROOT / "examples" / "zot").iterdir() if path.is_dir())
BROKEN = ROOT / "tests" / "broken_guests"
WELL = BROKEN / "well.py"
WEATHER = ROOT / "examples" / "zot" / "weather-python"

ZOT = [rule.name for rule in checker.rules("zot")]

# For what has to happen: generous, so that a busy machine does not turn it into something else.
PATIENT = Patience(
    hello=30, ready=30, answer=30, tool=30, command=30, intercept=30, hold=0.05, idle=0.05, shutdown=30, terminate=30, leave=30
)


class Broken(NamedTuple):
    """Which rules find it, whether they fail or only warn, and what is waited for in vain, which is quick."""

    failed: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    waits: Mapping[str, float] = {}
    calls: Mapping[str, object] = {}
    commands: tuple[str, ...] = ()


TABLE = {
    "acts-on-nothing": Broken(warned=("frames",), commands=("open_panel", "display", "prompt", "insert")),
    "agrees": Broken(("unknown-names",)),
    "bad-manifest": Broken(("manifest",)),
    "bad-names": Broken(("registrations",)),
    "bad-schema": Broken(("registrations",)),
    "banner": Broken(("hello",)),
    "blocks-the-loop": Broken(("open-requests",), waits={"answer": 3.0}, calls={"shout": {"text": "good morning"}}),
    "busy-until-killed": Broken(("terminate",), waits={"terminate": 0.5}),
    "closes-stdout": Broken(("hello",), waits={"shutdown": 0.5}),
    "crashes": Broken(("hello",)),
    "deaf-guard": Broken(("intercept",), waits={"intercept": 1.0}),
    "dies-in-its-panel": Broken(("optional-fields",), commands=("pick",)),
    "dies-of-events": Broken(("events",)),
    "does-not-stay": Broken(("hello",), waits={"hold": 30.0}),
    "drops-when-full": Broken(("burst",), waits={"hold": 0.5, "answer": 3.0}),
    "ends-early": Broken(("hello",)),
    "exit-status": Broken(warned=("shutdown",)),
    "fails-at-end": Broken(warned=("end-of-input",)),
    "hangs-without-host": Broken(("host-gone",), waits={"shutdown": 3.0}),
    "hello-twice": Broken(warned=("frames",)),
    "idles-out": Broken(("idle",), waits={"idle": 30.0}),
    "ignores-end": Broken(("end-of-input", "host-gone"), waits={"shutdown": 3.0}),
    "ignores-shutdown": Broken(("shutdown", "open-requests"), waits={"shutdown": 2.0}),
    "ignores-term": Broken(("terminate",), waits={"terminate": 0.5}),
    "ignores-unknown": Broken(("unknown-names",), waits={"answer": 3.0}),
    "late-tool": Broken(warned=("ready",)),
    "leaves-a-child": Broken(("left-behind",), waits={"leave": 0.2}),
    "leaves-a-daemon": Broken(("left-behind",), waits={"leave": 0.2}),
    "logs-to-stdout": Broken(("stdout",)),
    "long-lines": Broken(("frames",)),
    "looks-ahead": Broken(warned=("registrations",)),
    "loses-errors": Broken(("odd-arguments",), waits={"answer": 3.0}),
    "nameless": Broken(("hello",)),
    "no-program": Broken(("manifest",)),
    "no-ready": Broken(warned=("ready",), waits={"ready": 1.0}),
    "not-executable": Broken(("manifest",)),
    "null-rewrite": Broken(("intercept",)),
    "nulls": Broken(warned=("frames",)),
    "number-ids": Broken(("answers",)),
    "one-argument-guard": Broken(("intercept",)),
    "one-per-read": Broken(("burst",), waits={"answer": 3.0}),
    "only-json": Broken(("not-json",)),
    "only-known": Broken(("unknown-frames", "oversize")),
    "only-known-fields": Broken(("unknown-frames", "any-json")),
    "own-ids": Broken(("answers",)),
    "quotes-by-hand": Broken(("any-json", "stdout"), waits={"answer": 3.0}),
    "reads-by-pattern": Broken(("any-json",), waits={"answer": 3.0}),
    "rewrites-nothing": Broken(("intercept",)),
    "shadowed": Broken(warned=("registrations",)),
    "short-ids": Broken(("answers",)),
    "short-lines": Broken(("oversize",)),
    "splits-lines": Broken(("any-json",), waits={"answer": 3.0}),
    "stays-for-the-second": Broken(("open-requests",), waits={"shutdown": 3.0}),
    "stays-for-work": Broken(("open-requests", "host-gone"), waits={"shutdown": 2.0}),
    "strips-zeros": Broken(("answers",)),
    "trusting": Broken(("odd-arguments",)),
    "twice": Broken(("answers",)),
    "twice-late": Broken(("answers",), waits={"idle": 2.0}),
    "unflushed": Broken(("hello",), waits={"hello": 0.5}),
    "upper-ids": Broken(("answers",)),
    "waits-for-ack": Broken(("silent-host",), waits={"ready": 3.0}),
    "wants-error": Broken(("optional-fields",)),
    "wants-folders": Broken(("optional-fields",)),
    "wants-key-text": Broken(("optional-fields",)),
    "wants-text": Broken(("optional-fields",)),
    "works-until-killed": Broken(("terminate",), waits={"terminate": 0.5}, calls={"shout": {"text": "good morning"}}),
    "wrong-types": Broken(("frames",)),
}
# What is wrong there shows in no frame.
WITHOUT_FRAMES = {("manifest", name) for name in TABLE} | {
    ("hello", "crashes"),
    ("hello", "unflushed"),
    ("left-behind", "leaves-a-child"),
    ("left-behind", "leaves-a-daemon"),
}


def run_check(path: Path, **options: Any) -> Report:
    return checker.check(path, **{"patience": PATIENT, **options})


def write_variant(tmp_path: Path, old: str, new: str) -> Path:
    """A guest that does everything right but this."""
    text = WELL.read_text()
    assert old in text
    (tmp_path / "guest.py").write_text(text.replace(old, new, 1))
    return tmp_path / "guest.py"


# -- the broken and the good ------------------------------------------------------------------------------------------------------


def test_every_broken_guest_is_in_the_table() -> None:
    folders = {path.name for path in BROKEN.iterdir() if (path / "extension.json").exists()}
    assert folders == TABLE.keys()
    assert {rule for broken in TABLE.values() for rule in (*broken.failed, *broken.warned)} == set(ZOT)


@pytest.mark.slow
@pytest.mark.req("sdk.check.broken")
@pytest.mark.parametrize("name", TABLE)
def test_a_broken_guest_is_found_by_the_rule_that_it_breaks_and_by_no_other(name: str) -> None:
    if name == "logs-to-stdout":
        require("node")
    broken = TABLE[name]
    report = run_check(BROKEN / name, patience=replace(PATIENT, **broken.waits), calls=broken.calls, commands=broken.commands)
    assert (find_rules(report, "failed"), find_rules(report, "warned")) == (set(broken.failed), set(broken.warned)), str(report)
    assert report.ok is not bool(broken.failed)
    for finding in report.of("failed", "warned"):
        assert finding.why
        assert finding.hint
        assert finding.frames or (finding.rule, name) in WITHOUT_FRAMES
        assert all(frame[:2] in ("→ ", "← ") for frame in finding.frames)


@pytest.mark.req("sdk.check.good")
@pytest.mark.parametrize(
    "path", [*(pytest.param(path, marks=pytest.mark.slow) for path in EXAMPLES), WELL], ids=lambda path: path.name
)
def test_a_good_guest_passes_every_rule(path: Path) -> None:
    require(*{"words-node": ["node"], "disk-shell": ["jq"]}.get(path.name, []))
    report = run_check(path)
    assert find_rules(report, "failed") == find_rules(report, "warned") == set(), str(report)
    assert len(find_rules(report, "passed")) > len(ZOT) - 4
    assert list(report.rules()) == ZOT


SDK = """
from serai.sdk import Allow, Block, Extension, OpenPanel

ext = Extension("everything", version="1.0")
panel = ext.panel("tides", title="Tides")

@ext.tool
async def weather(city: str, days: int = 1) -> str:
    "The weather in a city."
    return f"{city}: fog for {days} days"

@ext.tool
def fails(why: str) -> str:
    "Fails."
    raise RuntimeError(why)

@ext.command("tide", "next high water")
def tide(args: str) -> OpenPanel:
    return panel.open([args])

@ext.on("turn_end")
def ended(event) -> None:
    print(event.stop)

@ext.intercept("tool_call")
def judge(call) -> Allow | Block:
    return Block("no") if call.name == "bash" else Allow()

ext.main()
"""


@pytest.mark.slow
@pytest.mark.req("sdk.check.good")
def test_a_guest_made_with_the_sdk_passes_every_rule(tmp_path: Path) -> None:
    (tmp_path / "everything.py").write_text(SDK)
    calls = {"weather": {"city": "Bern"}, "fails": {"why": "no luck"}}
    report = run_check(tmp_path / "everything.py", calls=calls, commands=["tide Husum"])
    assert find_rules(report, "failed") == find_rules(report, "warned") == set(), str(report)
    assert find_rules(report, "skipped") == {"manifest"}


# -- what a finding shows ---------------------------------------------------------------------------------------------------------


def check_rule(path: Path, rule: str, **options: Any) -> Finding:
    [finding] = run_check(path, only=[rule], **options).findings
    return finding


def test_a_finding_shows_the_frames_of_both_sides() -> None:
    finding = check_rule(BROKEN / "trusting", "odd-arguments")
    assert finding.why == "the tool call shout ended it, exit status 1"
    assert finding.frames == ('→ {"type":"tool_call","id":"064818707086","name":"shout","args":null}',)
    assert finding.stderr.endswith("TypeError: 'NoneType' object is not subscriptable")
    assert "null and lists too" in finding.hint


def test_a_guest_that_ends_too_soon_is_shown_with_its_last_words() -> None:
    finding = check_rule(BROKEN / "crashes", "hello")
    assert finding.why == "it ended before its hello, exit status 1"
    assert "no configuration found" in finding.stderr


def test_a_long_frame_is_cut() -> None:
    finding = check_rule(BROKEN / "short-lines", "oversize")
    assert len(finding.frames[0]) < 400
    assert finding.frames[0].endswith("bytes)")


def test_an_end_that_is_no_frame_is_shown_too() -> None:
    finding = check_rule(BROKEN / "ignores-term", "terminate", patience=replace(PATIENT, terminate=0.2))
    assert finding.frames[-1] == "→ [SIGTERM]"


def test_the_report_as_text_has_all_that_is_wrong_and_what_to_do() -> None:
    text = str(run_check(BROKEN / "bad-schema", only=["registrations", "manifest"]))
    assert text.count("bad-schema: registrations: ") == 3
    assert text.count("what to do: ") == 3
    assert str(run_check(WELL, only=["hello"])) == "well.py: nothing is wrong"


# Not a real one, and put together here so that no scanner takes it for one.
KEY_LINES = [f"MIIE{number:02}+DANBgkqhkiG/w0BAQEFAASCBKYwggSiAgEAAoIBAQDZ5OTrw2csa0mq" for number in range(26)]
KEY = "\n".join(["-----BEGIN " + "PRIVATE KEY-----", *KEY_LINES, "-----END " + "PRIVATE KEY-----"])


@pytest.mark.slow
@pytest.mark.parametrize("key", [KEY, KEY.partition("-----END")[0]], ids=["whole", "broken off"])
@pytest.mark.parametrize(
    ("before", "says", "failed"),
    [
        ("        self.open()", "sys.exit({key})", {"hello"}),
        ("        for line in sys.stdin", "print({key}, flush=True)", {"stdout"}),
        ('        if name != "shout"', "name == 'shout' or (print({key}, flush=True), sys.exit(1))", {"stdout", "unknown-names"}),
    ],
)
def test_a_key_is_quoted_nowhere(tmp_path: Path, key: str, before: str, says: str, failed: set[str]) -> None:
    text = WELL.read_text().replace(before, f"        {says.format(key=repr(key))}\n{before}")
    (tmp_path / "guest.py").write_text(text)
    report = run_check(tmp_path / "guest.py")
    assert find_rules(report, "failed") == failed, str(report)
    text = str(report) + repr(report)
    assert "*" * 20 in text
    assert not [line for line in KEY_LINES if line[:20] in text or line[-20:] in text]


@pytest.mark.parametrize("before", [262, 280, 296])
def test_half_a_token_is_not_quoted_where_a_frame_is_cut(tmp_path: Path, before: int) -> None:
    token = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"
    (tmp_path / "guest.py").write_text(f"print({' ' * before + token!r}, flush=True)\ninput()\n")
    [shown] = check_rule(tmp_path / "guest.py", "hello").frames
    assert "bytes)" in shown or before == 262
    assert "ghp" not in shown


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "does the program say hello before it ends? One that is made with the SDK has to call ext.main() at its end"),
        ("import sys; sys.exit(3)", "it says nothing on stderr either: start it by hand"),
        ("import sys; sys.exit('no luck')", "its stderr says why"),
    ],
)
def test_the_hint_for_one_that_says_nothing_fits_how_it_ended(tmp_path: Path, text: str, hint: str) -> None:
    (tmp_path / "guest.py").write_text(text)
    assert check_rule(tmp_path / "guest.py", "hello").hint.startswith(hint)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rule", "why"),
    [
        ("closes-stdout", "hello", "it has closed its stdout, and lives on"),
        ("fails-at-end", "end-of-input", "it ends with exit status 1, and after shutdown with exit status 0"),
        ("long-lines", "frames", "a line has more than 4194304 bytes: no host reads it"),
        ("looks-ahead", "registrations", "the schema of run has patterns that Serai cannot check: "),
        ("reads-by-pattern", "any-json", "the tool call serai_check_no_such_name, with its type at the end, got no answer "),
        ("splits-lines", "any-json", "the tool call serai_check_no_such_name, with U+0085, U+2028 and U+2029 in a text, got no "),
        (
            "quotes-by-hand",
            "any-json",
            "the tool call serai_check_no_such_name, with quotes and more than ASCII in its id, got no ",
        ),
        ("works-until-killed", "terminate", "it does not end within 0.5 s of SIGTERM in the middle of its work"),
    ],
)
def test_what_is_wrong_is_named(name: str, rule: str, why: str) -> None:
    broken = TABLE[name]
    finding = check_rule(BROKEN / name, rule, patience=replace(PATIENT, **broken.waits), calls=broken.calls)
    assert finding.why.startswith(why)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missed", "how"),
    [
        (r"b'type' in line and not line.startswith(b'{\"type\"')", "with its type at the end"),
        (r"line[:1].isspace()", "with blanks around its parts"),
        (r"b'\\u0074' in line", "with an escape for every character"),
        (r"b'\xc2\x85' in line", "with U+0085, U+2028 and U+2029 in a text"),
        (r"b'\xe2\x80\xa8' in line", "with U+0085, U+2028 and U+2029 in a text"),
    ],
)
def test_each_form_of_a_request_is_tried(tmp_path: Path, missed: str, how: str) -> None:
    read = "def read(self, line: bytes) -> Frame:\n"
    path = write_variant(tmp_path, read, f"{read}        if {missed}:\n            return {{}}\n")
    finding = check_rule(path, "any-json", patience=replace(PATIENT, answer=3.0))
    assert finding.why.startswith(f"the tool call serai_check_no_such_name, {how}, got no answer")


def test_one_that_ends_a_moment_after_its_output_has_ended(tmp_path: Path) -> None:
    opening = '{"type":"hello","name":"x","version":""}\\n{"type":"ready"}'
    text = f"import os, select\nprint('{opening}', flush=True)\nos.close(1)\nselect.select([], [], [], 0.3)\nos._exit(3)\n"
    (tmp_path / "guest.py").write_text(text)
    assert check_rule(tmp_path / "guest.py", "hello").why == "it ends by itself right after its opening, exit status 3"


def test_a_hello_ack_that_ends_it_is_named_however_soon() -> None:
    finding = check_rule(BROKEN / "wants-folders", "optional-fields")
    assert "a hello_ack without extension_dir and data_dir" in finding.why
    assert [frame for frame in finding.frames if frame.startswith('→ {"type":"hello_ack",') and "data_dir" not in frame]


@pytest.mark.parametrize(
    "schema", ['{"pattern": "("}', '{"pattern": "(?!rm)", "type": "objekt"}', '{"pattern": "(?=x", "$ref": "#/x"}']
)
def test_a_schema_that_no_engine_takes_has_failed(tmp_path: Path, schema: str) -> None:
    tool = f'{{"type": "register_tool", "name": "odd", "schema": {schema}}},'
    (tmp_path / "guest.py").write_text(WELL.read_text().replace("offers: tuple[Frame, ...] = (", f"offers = ({tool}", 1))
    assert check_rule(tmp_path / "guest.py", "registrations").status == "failed"


@pytest.mark.slow
def test_one_that_never_stops_talking_is_checked_all_the_same(tmp_path: Path) -> None:
    talks = """
    def open(self):
        super().open()
        threading.Thread(target=self.talk, daemon=True).start()

    def talk(self):
        while True:
            os.write(1, b'{"type":"notify","level":"info","message":"and"}\\n' * 20)
"""
    imports = f"import os, sys, threading\nsys.path.insert(0, {str(BROKEN)!r})\nfrom well import Well"
    (tmp_path / "guest.py").write_text(f"{imports}\nclass Talks(Well):{talks}\nTalks().run()\n")
    assert check_rule(tmp_path / "guest.py", "idle").status == "passed"


# As every frame has it, with a type: what has no letter at all may have but one form.
FRAMES = st.dictionaries(
    st.text(max_size=5), st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=2)), max_size=4
).map(lambda frame: {"type": "tool_call", **frame})


@given(FRAMES, st.sampled_from(sorted(FORMS)))
def test_every_form_of_a_frame_is_one_line_and_the_same_json(frame: dict[str, Any], how: str) -> None:
    raw = FORMS[how](frame)
    assert b"\n" not in raw
    assert b"\r" not in raw
    read = json.loads(raw)
    assert {key: value for key, value in read.items() if key != "note"} == {
        key: value for key, value in frame.items() if key != "note"
    }
    assert raw != compact(frame) or len(frame) < 2


def test_half_a_character_in_a_name_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "guest.py").write_text(WELL.read_text().replace('"name": "shout"', '"name": "sh\\ud800out"'))
    report = run_check(tmp_path / "guest.py")
    assert find_rules(report, "failed") == {"registrations"}, str(report)
    assert "sh\\ud800out" in str(report)


def test_a_guest_that_ends_at_a_request_is_not_blamed_for_what_it_lives_through(tmp_path: Path) -> None:
    dies = WELL.read_text().replace(
        'if name != "shout"', 'if name != "shout":\n            sys.exit(3)\n        if name != "shout"'
    )
    (tmp_path / "guest.py").write_text(dies)
    report = run_check(tmp_path / "guest.py")
    assert find_rules(report, "failed") == {"unknown-names"}, str(report)
    assert find_rules(report, "warned") == set()


SLOW = """
import json, sys, time

def say(frame):
    print(json.dumps(frame), flush=True)

say({"type": "hello", "name": "slow", "version": "1"})
say({"type": "register_tool", "name": "think", "schema": {"type": "object"}})
say({"type": "ready"})
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "tool_call":
        time.sleep(0.05)  # 64 of them take three seconds
        say({"type": "tool_result", "id": frame["id"], "content": [], "is_error": True})
"""


@pytest.mark.slow
@pytest.mark.req("sdk.check.broken")
def test_who_is_slow_and_goes_on_answering_passes_the_burst(tmp_path: Path) -> None:
    (tmp_path / "guest.py").write_text(SLOW)
    report = run_check(tmp_path / "guest.py", only=["burst"], patience=replace(PATIENT, answer=1.5))
    assert report.rules() == {"burst": "passed"}, str(report)


# -- real calls -------------------------------------------------------------------------------------------------------------------

DIARY = """
import json, os, sys

def say(frame):
    print(json.dumps(frame), flush=True)

say({"type": "hello", "name": "diary", "version": "1"})
say({"type": "register_tool", "name": "deploy", "schema": {"type": "object", "properties": {}}})
say({"type": "register_tool", "name": "anything", "schema": {}})
say({"type": "register_tool", "name": "erase", "schema": {"type": "object", "required": ["path"]}})
say({"type": "register_tool", "name": "shred", "schema": {"required": ["path"]}})
say({"type": "register_command", "name": "reboot"})
say({"type": "ready"})
for line in sys.stdin:
    try:
        frame = json.loads(line)
    except ValueError:
        continue
    if not isinstance(frame, dict):
        continue
    if frame.get("type") in ("tool_call", "command_invoked"):
        with open(os.environ["DIARY"], "a") as diary:
            print(json.dumps([frame["name"], frame.get("args")]), file=diary)
    if frame.get("type") == "tool_call":
        say({"type": "tool_result", "id": frame["id"], "content": [], "is_error": True})
    elif frame.get("type") == "command_invoked":
        say({"type": "command_response", "id": frame["id"], "action": "noop", "error": "no"})
"""


def record_diary(tmp_path: Path, **options: Any) -> list[Any]:
    """What a guest was asked to do, while it was checked."""
    (tmp_path / "diary.py").write_text(DIARY)
    run_check(tmp_path / "diary.py", environ={**os.environ, "DIARY": str(tmp_path / "diary")}, **options)
    return [json.loads(line) for line in (tmp_path / "diary").read_text().splitlines()]


@pytest.mark.req("sdk.check.harmless")
def test_no_tool_is_run_with_arguments_that_fit_it(tmp_path: Path) -> None:
    asked = record_diary(tmp_path)
    # All that is no object fits `shred`: only an object can lack what it requires.
    assert {name for name, _ in asked} == {"serai_check_no_such_name", "erase"}
    schema = {"type": "object", "required": ["path"]}
    tried = [args for name, args in asked if name == "erase"]
    assert len(tried) > 3
    assert not [args for args in tried if jsonschema_rs.is_valid(schema, args)]


@pytest.mark.req("sdk.check.harmless")
def test_what_the_caller_gives_is_really_called(tmp_path: Path) -> None:
    asked = record_diary(tmp_path, calls={"deploy": {"where": "here"}}, commands=["/reboot  now then", "reboot"])
    assert asked.count(["deploy", {"where": "here"}]) >= 12  # the help says dozens of times, and so only what does no harm
    assert ["deploy", None] in asked  # it may be called, so it is given odd arguments, too
    assert [args for name, args in asked if name == "reboot"].count("now then") > 3
    assert ["reboot", None] in asked
    assert "anything" not in {name for name, _ in asked}


def test_a_given_call_that_gets_no_answer_is_found(tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text(WELL.read_text().replace('args["text"].upper()', "sys.stdin.read()"))
    finding = check_rule(tmp_path / "mute.py", "answers", calls={"shout": {"text": "x"}}, patience=replace(PATIENT, tool=0.5))
    assert (finding.status, finding.why) == ("failed", "the tool call shout got no answer within 0.5 s")


def test_a_given_call_of_nobody_is_found() -> None:
    finding = check_rule(WELL, "answers", calls=[("whisper", {})])
    assert (finding.status, finding.why, finding.hint) == ("failed", "it has no whisper to try", "it has shout")


# -- the kit ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.req("sdk.check.pytest")
@pytest.mark.parametrize("rule", ZOT)
def test_each_rule_can_be_a_test_of_its_own(rule: str) -> None:
    report = checker.assert_conforms(WEATHER, rule, patience=PATIENT)
    assert list(report.rules()) == [rule]


@pytest.mark.req("sdk.check.pytest")
def test_what_does_not_conform_fails_the_test_with_all_that_is_wrong() -> None:
    with pytest.raises(
        AssertionError, match="(?s)banner: hello: its first line is no hello frame.*← banner extension.*what to do: "
    ):
        checker.assert_conforms(BROKEN / "banner", patience=PATIENT)
    checker.assert_conforms(BROKEN / "nulls", "frames", patience=PATIENT)  # a warning is no failure


@pytest.mark.slow
@pytest.mark.req("sdk.check.pytest")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("crashes", "it does not open: it ended before its hello, exit status 1"),
        ("no-program", "it cannot be started: there is no "),
    ],
)
@pytest.mark.parametrize("rule", [rule for rule in ZOT if rule not in ("manifest", "hello")])
def test_no_rule_alone_is_green_for_a_guest_that_does_not_open(name: str, why: str, rule: str) -> None:
    finding = check_rule(BROKEN / name, rule)
    assert (finding.rule, finding.status) == (rule, "failed")
    assert finding.why.startswith(why)
    assert finding.hint
    assert ("no configuration found" in finding.stderr) is (name == "crashes")


def test_a_rule_is_skipped_only_where_those_of_the_opening_say_why() -> None:
    assert check_rule(BROKEN / "no-program", "hello").status == "failed"
    assert run_check(BROKEN / "crashes", only=["hello", "burst"]).rules() == {"hello": "failed", "burst": "failed"}
    assert run_check(BROKEN / "crashes", only=["manifest", "hello", "burst"]).rules()["burst"] == "skipped"


def test_a_rule_that_does_not_exist_is_named() -> None:
    with pytest.raises(checker.UnknownRule, match="there is no rule manners; there are: manifest, hello, "):
        checker.check(WELL, only=["manners"])


def test_every_rule_says_what_it_asks_and_which_requirements_it_is_about() -> None:
    known = {requirement.id for requirement in manifest.load_all()}
    for rule in checker.rules("zot"):
        assert rule.text
        assert rule.requirements
        assert not set(rule.requirements) - known


def test_a_report_counts_rules_and_not_findings() -> None:
    report = run_check(BROKEN / "bad-schema")
    assert len(report.of("failed")) == 3
    assert report.summary()["failed"] == 1
    assert sum(report.summary().values()) == len(ZOT)


# -- what is checked --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["extension.json", "weather.py", ""])
def test_a_guest_is_named_by_its_folder_its_manifest_or_its_program(path: str) -> None:
    report = run_check(WEATHER / path, only=["hello", "manifest"])
    assert report.ok
    assert report.rules() == {"manifest": "skipped" if path == "weather.py" else "passed", "hello": "passed"}


def test_a_path_without_a_guest_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for path in (tmp_path / "nowhere", tmp_path / "notes.txt"):
        with pytest.raises(NoGuest):
            checker.check(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "extension.json: No such file"),
        ("{", "parse manifest: "),
        ('{"name":"x"}', "manifest: exec is required"),
        ('{"name":"x","exec":"serai-no-such-program"}', "there is no program serai-no-such-program in the PATH"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_a_finding_and_the_rest_is_skipped(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "extension.json").write_text(text)
    report = run_check(tmp_path)
    assert report.findings[0].rule == "manifest"
    assert why in report.findings[0].why
    assert find_rules(report, "failed") == {"manifest"}
    assert find_rules(report, "skipped") == set(ZOT) - {"manifest"}


def test_a_disabled_guest_is_checked_with_a_warning(tmp_path: Path) -> None:
    about = {"name": "off", "exec": "python3", "args": [str(WELL)], "enabled": False}
    (tmp_path / "extension.json").write_text(json.dumps(about))
    report = run_check(tmp_path, only=["manifest", "hello"])
    assert report.rules() == {"manifest": "warned", "hello": "passed"}


def test_a_program_that_is_no_program_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "extension.json").write_text('{"name":"x","exec":"./run"}')
    (tmp_path / "run").write_text("no program")
    (tmp_path / "run").chmod(0o755)
    report = run_check(tmp_path)
    assert find_rules(report, "failed") == {"hello"}
    assert "it cannot be started" in str(report)


ONLY_ONE = """
import fcntl, sys
lock = open("lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit("another one is running")
"""


@pytest.mark.slow
def test_one_that_must_be_alone_is_checked_alone(tmp_path: Path) -> None:
    (tmp_path / "guest.py").write_text(WELL.read_text().replace("import json\n", f"import json\n{ONLY_ONE}", 1))
    (tmp_path / "extension.json").write_text('{"name":"alone","exec":"python3","args":["guest.py"]}')
    (tmp_path / "guest.toml").write_text("exclusive = true\n")
    assert run_check(tmp_path).ok


def test_one_that_does_not_start_again_is_found(tmp_path: Path) -> None:
    once = 'import os\nos.close(os.open("started", os.O_CREAT | os.O_EXCL))\n'
    (tmp_path / "guest.py").write_text(WELL.read_text().replace("import json\n", f"import json\n{once}", 1))
    finding = check_rule(tmp_path / "guest.py", "shutdown")
    assert finding.status == "failed"
    assert finding.why.startswith("started once more, it ended before its hello")
    assert "exclusive = true" in finding.hint


def test_a_guest_gets_no_credentials_unless_they_are_given_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATION_TOKEN", "hush")
    needs = 'import os\nos.environ["STATION_TOKEN"]\n'
    (tmp_path / "guest.py").write_text(WELL.read_text().replace("import json\n", f"import json\n{needs}", 1))
    assert check_rule(tmp_path / "guest.py", "hello").status == "failed"
    assert check_rule(tmp_path / "guest.py", "hello", environ=os.environ).status == "passed"


def test_a_guest_is_not_helped_with_its_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No host sets PYTHONUNBUFFERED; machines on which tests run do."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    path = write_variant(tmp_path, "sys.stdout.flush()", "pass")
    assert check_rule(path, "hello", patience=replace(PATIENT, hello=0.5)).why == "it said nothing for 0.5 s"
    assert "PYTHONUNBUFFERED" not in checker.environment()


def test_a_guest_writes_its_data_into_a_folder_that_is_gone_afterwards(tmp_path: Path) -> None:
    keeps = """
    def take(self, frame):
        if frame.get("type") == "hello_ack":
            if "data_dir" in frame:
                open(os.path.join(frame["data_dir"], "kept"), "x").close()
                print(frame["data_dir"], file=open("where", "a"))
        super().take(frame)
"""
    (tmp_path / "guest.py").write_text(
        f"import os, sys\nsys.path.insert(0, {str(BROKEN)!r})\nfrom well import Well\nclass Keeps(Well):{keeps}\nKeeps().run()\n"
    )
    assert run_check(tmp_path / "guest.py").ok
    folders = (tmp_path / "where").read_text().split()
    assert len(folders) > 5
    assert len(set(folders)) == len(folders)
    assert not [folder for folder in folders if os.path.exists(folder)]


# -- which Python it gets ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A PATH whose `python3` has nothing but its standard library."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    return str(python.parent)


def test_a_guest_gets_the_python_of_the_environment_that_is_given(
    tmp_path: Path, bare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guest.py").write_text(SDK)
    (tmp_path / "extension.json").write_text('{"name":"everything","exec":"python3","args":["guest.py"]}')
    finding = check_rule(tmp_path, "hello", environ={"PATH": bare})
    assert finding.status == "failed"
    assert "No module named 'serai'" in finding.stderr
    assert finding.hint.startswith("the Python that starts it has no serai: name one that has in `exec`, or ")
    monkeypatch.setenv("PATH", bare)
    assert check_rule(tmp_path, "hello").status == "passed"  # for pytest it is the Python of the tests
    for environ in ({"PATH": bare}, {}):  # no manifest says which Python it is for
        assert check_rule(tmp_path / "guest.py", "hello", environ=environ).status == "passed"


@pytest.mark.parametrize(("module", "status"), [("json", "passed"), ("serai", "failed")])
def test_a_bundle_gets_nothing_but_python(tmp_path: Path, module: str, status: str) -> None:
    with zipfile.ZipFile(tmp_path / "guest.pyz", "w") as bundle:
        bundle.writestr("__main__.py", f"import {module}\nfrom well import Well\nWell().run()\n")
        bundle.writestr("well.py", WELL.read_text())
    assert check_rule(tmp_path / "guest.pyz", "hello").status == status


# -- nothing is left --------------------------------------------------------------------------------------------------------------

DAEMON = """import subprocess
daemon = subprocess.Popen(["tail", "-f", "/dev/null"], start_new_session=True, stdout=subprocess.DEVNULL)
print(daemon.pid, file=open("pids", "a"))
"""


@pytest.mark.req("sdk.check.broken")
def test_what_a_guest_leaves_in_a_session_of_its_own_is_found_and_ended(tmp_path: Path) -> None:
    (tmp_path / "guest.py").write_text(WELL.read_text().replace("import json\n", f"import json\n{DAEMON}", 1))
    report = run_check(tmp_path / "guest.py", patience=replace(PATIENT, leave=0.05))
    assert find_rules(report, "failed") == {"left-behind"}
    assert "leaves tail running" in str(report)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) > 5
    assert not [pid for pid in pids if lives(pid)]


CHECK = """
import sys
from serai.testing import conformance
from serai.testing.conformance import checker, findings
checker.check(sys.argv[1], patience=findings.Patience(hello=600))
"""


def test_ctrl_c_ends_a_check_and_its_guest_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    (tmp_path / "guest.py").write_text(f"import os, signal\n{DAEMON}print(os.getpid(), file=open('pid', 'w'))\nsignal.pause()\n")
    with subprocess.Popen([sys.executable, "-c", CHECK, tmp_path / "guest.py"], stderr=subprocess.PIPE) as check:
        guest = int((tmp_path / "pid").read_text())
        check.send_signal(signal.SIGINT)
        said = check.communicate(timeout=40)[1]
    assert b"KeyboardInterrupt" in said
    daemon = int((tmp_path / "pids").read_text())
    assert not [pid for pid in (guest, daemon) if lives(pid)]
