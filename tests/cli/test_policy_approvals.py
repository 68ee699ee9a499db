"""`serai policy pending|answer|forget` as a person calls them, with what really waits in the file."""

from __future__ import annotations

import asyncio
import getpass
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from serai.cli import policy_approvals
from serai.model.approvals import Allow, Answer, Approval, Deny, Question, QuestionItem, QuestionOption
from serai.model.surface import HeadlessSurface
from serai.model.tools import ToolCall
from serai.policy import Approver, CallContext, DecisionStore, PendingApproval, Policy, Rule, Rules
from serai.policy.decision_store import NAME
from serai.policy.rules import parse_rule_flag
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import Shell, parse_objects, read_lines

HOSTILE = "\x1b]0;title\x07\x1b[2J\u202e"
TOKEN = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"
ODD, SPELT = "\udcff", "\\udcff"  # a byte that is no text, as Python has it and as it is kept
HOUR = 3600.0


@pytest.fixture
def shell(tmp_path: Path) -> InProcessShell:
    return InProcessShell(tmp_path)


def ask(store: DecisionStore, tool: str = "bash", arguments: Any = None, *, session: str = "s1", **fields: Any) -> PendingApproval:
    call = ToolCall(tool, {"command": "git push"} if arguments is None else arguments, id="c1")
    situation = CallContext(cwd="/srv/project", session=session, agent="claude")
    return store.ask(Approval(id="1", agent="claude", call=call, **fields), situation, "digest", HOUR)


def ask_question(store: DecisionStore, *items: QuestionItem) -> PendingApproval:
    situation = CallContext(cwd="/srv/project", session="s1")
    return store.ask(Question(id="1", agent="claude", items=items), situation, "digest", HOUR)


COLOUR = QuestionItem("Which colour?", choices=(QuestionOption("Red", "like a rose"), QuestionOption("Blue")))
TOPPINGS = QuestionItem("Which toppings?", choices=(QuestionOption("Salt"), QuestionOption("Mint")), several=True)


# -- pending ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.cli.answer")
def test_pending_shows_what_waits_as_a_person_has_to_see_it(shell: Shell, store: DecisionStore) -> None:
    one = ask(store, arguments={"command": "git push\nrm -rf x", "timeout": 5, "env": {"A": "b"}}, reason="no rule decides it")
    ran = shell("policy", "pending")
    said = ran.stdout.splitlines()
    assert said[:6] == [
        f"{one.id}  bash, asked by claude: waiting",
        "  command | git push",
        "          | rm -rf x",
        "  timeout | 5",
        '  env | {"A":"b"}',
        "  asked because: no rule decides it",
    ]
    assert said[6].startswith("  in /srv/project, session s1, asked at ")
    assert said[7].startswith("  waits until ")
    assert said[8:] == [f"  serai policy answer {one.id} allow   (or deny)"]
    assert (ran.stderr, ran.returncode) == ("", 0)


@pytest.mark.req("policy.cli.answer")
def test_pending_shows_questions_with_their_choices(shell: Shell, store: DecisionStore) -> None:
    one = ask_question(store, COLOUR)
    said = shell("policy", "pending").stdout.splitlines()
    assert said[:4] == [
        f"{one.id}  a question, asked by claude: waiting",
        "  it asks | Which colour?",
        "          | 1. Red: like a rose",
        "          | 2. Blue",
    ]
    assert said[-1] == f"  serai policy answer {one.id} --answer TEXT"


@pytest.mark.req("policy.cli.answer")
def test_nothing_that_waits_acts_on_the_terminal_looks_like_ours_or_is_masked(shell: Shell, store: DecisionStore) -> None:
    forged = "ls\r\n  waits until tomorrow"
    ask(store, f"bash {HOSTILE}", {"command": f"curl {TOKEN} {HOSTILE}", f"a\n{HOSTILE}": forged}, reason=HOSTILE, title=HOSTILE)
    ask_question(store, QuestionItem(HOSTILE, choices=(QuestionOption(HOSTILE, HOSTILE),)))
    shown = shell("policy", "pending")
    for ran in (shown, shell("policy", "pending", "--json")):
        assert (ran.stderr, ran.returncode) == ("", 0)
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(ran.stdout)
        assert TOKEN in ran.stdout
    assert "| ls\\x0d\n" in shown.stdout
    assert "\n  waits until tomorrow" not in shown.stdout


@pytest.mark.req("policy.cli.answer")
def test_what_is_long_is_cut_in_the_list_and_said_so_and_whole_by_its_id(shell: Shell, store: DecisionStore) -> None:
    content = "\n".join(f"line {number}" for number in range(1000)) + "\nrm -rf /"
    one = ask(store, "write", {"path": "x", "content": content})
    said = shell("policy", "pending").stdout
    assert "rm -rf" not in said
    assert " characters more\n" in said
    assert f"  all of it: serai policy pending {one.id}\n" in said
    whole = shell("policy", "pending", one.id[:6]).stdout
    assert "| rm -rf /\n" in whole
    assert "characters more" not in whole


@pytest.mark.req("policy.cli.answer")
def test_pending_as_json(shell: Shell, store: DecisionStore) -> None:
    one = ask(store)
    [form] = parse_objects(shell("policy", "pending", "--json"))
    assert (form["id"], form["state"]) == (one.id, "waiting")
    assert form["request"]["call"]["arguments"] == {"command": "git push"}
    assert form["situation"] == {"cwd": "/srv/project", "session": "s1", "agent": "claude"}
    assert form["until"] - form["asked"] == HOUR


@pytest.mark.req("policy.cli.answer")
def test_what_was_settled_is_shown_when_all_is_asked_for(shell: Shell, store: DecisionStore) -> None:
    one = ask(store)
    store.settle(one.id, "used", Deny("no"), "the surface")
    empty = shell("policy", "pending")
    assert (empty.stdout, empty.stderr, empty.returncode) == ("", "nothing waits for an answer\n", 0)
    said = shell("policy", "pending", "--all").stdout.splitlines()
    assert said[0] == f"{one.id}  bash, asked by claude: answered"
    assert said[-1] == "  settled by the surface: deny"
    [form] = parse_objects(shell("policy", "pending", "--all", "--json"))
    assert (form["state"], form["decision"], form["answered_by"]) == ("used", {"type": "deny", "why": "no"}, "the surface")


@pytest.mark.req("policy.cli.answer")
def test_a_question_that_was_settled_is_shown_without_what_it_asked(shell: Shell, store: DecisionStore) -> None:
    one = ask_question(store, COLOUR)
    store.settle(one.id, "used", Answer({"Which colour?": "Red"}), "the surface")
    said = read_lines(shell("policy", "pending", "--all"))
    assert said[0] == f"{one.id}  a question, asked by claude: answered"
    assert said[1].startswith("  in /srv/project, session s1, asked at ")
    assert said[2:] == ["  settled by the surface"]


@pytest.mark.req("policy.cli.answer")
@pytest.mark.parametrize(("term", "no_color", "coloured"), [("xterm", "", True), ("xterm", "1", False), ("dumb", "", False)])
def test_there_are_colours_unless_somebody_wants_none(
    shell: InProcessShell, store: DecisionStore, term: str, no_color: str, coloured: bool
) -> None:
    ask(store)
    shell.coloured = True
    assert ("\x1b[" in shell("policy", "pending", TERM=term, NO_COLOR=no_color).stdout) is coloured


@pytest.mark.req("policy.cli.answer")
def test_without_a_file_nothing_waits_and_none_is_made(shell: Shell) -> None:
    for arguments in (["pending"], ["forget", "--all"], ["answer", "aaaa", "allow"], ["list"]):
        shell("policy", *arguments)
    assert not shell.home.exists()


# Somebody who may only read: root too, once it has no capabilities.
READER = """
import ctypes, os
if os.geteuid() == 0:
    assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0
from serai.cli import main
main()
"""


@pytest.mark.req("policy.cli.answer", "policy.cli.list", "policy.cli.test")
def test_what_there_is_can_be_shown_where_nothing_can_be_written(shell: Shell, store: DecisionStore, tmp_path: Path) -> None:
    one = ask(store)
    known = store.remember(Rule(id="r", decide="deny", tool=("t",)), "always", "", None)
    store.close()
    (tmp_path / "tmp").mkdir()
    shell.home.chmod(0o555)
    before = (shell.home / NAME).read_bytes()

    def reader(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", READER, "policy", *arguments]
        env = shell.env | {"TMPDIR": str(tmp_path / "tmp")}
        return subprocess.run(argv, env=env, cwd=shell.cwd, capture_output=True, text=True, check=False)

    try:
        for command, said in ((["pending"], one.id), (["list"], known.id), (["test", "t"], "t: denied")):
            ran = reader(*command)
            assert (said in ran.stdout, ran.stderr, ran.returncode) == (True, "", 0)
        ran = reader("answer", one.id, "allow")
        assert (ran.stdout, ran.returncode) == ("", 1)
    finally:
        shell.home.chmod(0o755)
    assert (os.listdir(tmp_path / "tmp"), (shell.home / NAME).read_bytes()) == ([], before)


# -- answer -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.cli.answer")
@pytest.mark.parametrize(
    ("options", "decision"),
    [
        (["allow"], Allow()),
        (["allow", "--remember", "session"], Allow(remember="session")),
        (["allow", "--arguments", '{"command": "git push -n"}'], Allow({"command": "git push -n"})),
        (["allow", "--arguments", "{}", "--remember", "always"], Allow({}, "always")),
        (["deny"], Deny()),
        (["deny", "--why", "not today", "--interrupt", "--remember", "project"], Deny("not today", True, "project")),
    ],
)
def test_an_approval_is_answered_as_it_is_said(
    shell: Shell, store: DecisionStore, options: list[str], decision: Allow | Deny
) -> None:
    one = ask(store)
    ran = shell("policy", "answer", one.id[:5], *options)
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"{one.id}: {'allowed' if options[0] == 'allow' else 'denied'}\n", "", 0)
    answered = store.find(one.id)
    assert (answered.state, answered.decision) == ("answered", decision)
    assert answered.answered_by


@pytest.mark.req("policy.cli.answer")
@pytest.mark.parametrize(
    ("options", "answers"),
    [
        (["--answer", "2", "--answer", "salt, Pepper"], {"Which colour?": "Blue", "Which toppings?": ["Salt", "Pepper"]}),
        (["--answer", "green", "--answer", "1"], {"Which colour?": "green", "Which toppings?": ["Salt"]}),
        (["deny"], {}),
    ],
)
def test_a_question_is_answered_by_numbers_labels_and_texts_or_dismissed(
    shell: Shell, store: DecisionStore, options: list[str], answers: dict[str, Any]
) -> None:
    one = ask_question(store, COLOUR, TOPPINGS)
    ran = shell("policy", "answer", one.id, *options)
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"{one.id}: answered\n", "", 0)
    assert store.find(one.id).decision == Answer(answers)


@pytest.mark.req("policy.cli.answer", "policy.pending.once")
def test_the_second_answer_is_told_that_there_was_a_first(shell: Shell, store: DecisionStore) -> None:
    one = ask(store)
    assert shell("policy", "answer", one.id, "deny").returncode == 0
    ran = shell("policy", "answer", one.id, "allow", "--as", "bash", "--remember", "always")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert ran.stderr.startswith("serai: it is not waiting any more: answered by ")
    assert store.find(one.id).decision == Deny()
    assert store.list_decisions() == ()  # who was second has nothing remembered either


@pytest.mark.req("policy.cli.answer")
def test_something_wider_is_remembered_when_it_is_said(shell: Shell, store: DecisionStore) -> None:
    one = ask(store)
    assert shell("policy", "answer", one.id, "allow", "--remember", "project", "--as", "bash:git push *").returncode == 0
    [known] = store.list_decisions()
    assert (known.scope, known.key, known.rule.decide, known.rule.command) == ("project", "/srv/project", "allow", ("git push *",))
    assert store.find(one.id).decision == Allow()


@pytest.mark.req("policy.cli.answer")
def test_a_denial_can_be_remembered_wider_too(shell: Shell, store: DecisionStore) -> None:
    one = ask(store)
    assert shell("policy", "answer", one.id, "deny", "--why", "never", "--remember", "always", "--as", "bash:git *").returncode == 0
    [known] = store.list_decisions()
    assert (known.rule.decide, known.rule.command, known.rule.because, known.expires) == ("deny", ("git *",), "never", None)


@pytest.mark.req("policy.cli.answer")
@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ([], 2, "say allow or deny, or to a question --answer TEXT"),
        (["maybe"], 2, "'maybe' is not one of 'allow', 'deny'"),
        (["--answer", "yes"], 2, "it asks whether bash may run: say allow or deny"),
        (["allow", "--answer", "yes"], 2, "not both"),
        (["allow", "--why", "x"], 2, "--why goes with deny"),
        (["allow", "--interrupt"], 2, "--interrupt goes with deny"),
        (["deny", "--arguments", "{}"], 2, "--arguments goes with allow"),
        (["allow", "--arguments", "nonsense"], 2, "--arguments: not JSON"),
        (["allow", "--arguments", "[]"], 2, "--arguments: the arguments are an object"),
        (["allow", "--as", "bash"], 2, "--as is to be remembered"),
        (["allow", "--as", ""], 2, "--as is to be remembered"),
        (["allow", "--as", "", "--remember", "always"], 1, "it is TOOL or TOOL:PATTERN"),
        (["allow", "--remember", "forever"], 2, "'forever' is not one of"),
        (["allow", "--remember", "always", "--as", "bash:"], 1, "it is TOOL or TOOL:PATTERN"),
    ],
)
def test_what_is_no_answer_leaves_it_waiting(
    shell: Shell, store: DecisionStore, options: list[str], status: int, said: str
) -> None:
    one = ask(store)
    ran = shell("policy", "answer", one.id, *options)
    assert (ran.stdout, ran.returncode) == ("", status)
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert store.find(one.id).state == "waiting"


@pytest.mark.req("policy.cli.answer")
@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["allow"], 2, "it is a question: say --answer TEXT"),
        (["--answer", "1"], 1, "it asks 2 questions, and there are 1 answer\nsay --answer once for each"),
        (["--answer", "1", "--answer", " "], 1, "an answer is empty\nsay something, or deny to dismiss the question\n"),
        (["--answer", "1", "--answer", "2", "--remember", "always"], 2, "the answer to a question is not remembered"),
    ],
)
def test_what_is_no_answer_to_a_question_leaves_it_waiting(
    shell: Shell, store: DecisionStore, options: list[str], status: int, said: str
) -> None:
    one = ask_question(store, COLOUR, TOPPINGS)
    ran = shell("policy", "answer", one.id, *options)
    assert (ran.stdout, ran.returncode) == ("", status)
    assert said in ran.stderr
    assert store.find(one.id).state == "waiting"


@pytest.mark.req("policy.cli.answer", "policy.remember.deny")
def test_what_an_agent_does_not_want_remembered_is_not_and_that_is_said(shell: Shell, store: DecisionStore) -> None:
    one = ask(store, no_always=True)
    for more in ([], ["--as", "bash"]):
        ran = shell("policy", "answer", one.id, "allow", "--remember", "always", *more)
        assert (ran.stdout, ran.returncode) == ("", 1)
        assert "the agent does not want this remembered\nanswer it without --remember\n" in ran.stderr
    assert store.find(one.id).state == "waiting"
    assert shell("policy", "answer", one.id, "deny", "--remember", "always").returncode == 0


@pytest.mark.req("policy.cli.answer")
def test_nothing_is_remembered_for_a_session_without_a_name(shell: Shell, store: DecisionStore) -> None:
    one = ask(store, session="")
    ran = shell("policy", "answer", one.id, "allow", "--remember", "session")
    assert "it is of no session that could be known again\nsay --remember project or always\n" in ran.stderr
    assert store.find(one.id).state == "waiting"


@pytest.mark.req("policy.cli.answer")
@pytest.mark.parametrize(
    ("id", "said"), [("nonsense", "'nonsense'"), ("", "''"), ("\x1b[2J", "'\\x1b[2J'"), ("%", "'%'"), (ODD, repr(SPELT))]
)
def test_what_does_not_wait_cannot_be_answered(shell: Shell, store: DecisionStore, id: str, said: str) -> None:
    ask(store)
    for command in (["answer", id, "allow"], ["pending", id]):
        ran = shell("policy", *command)
        assert (ran.stdout, ran.returncode) == ("", 1)
        assert ran.stderr == f"serai: there is no approval {said}\n`serai policy pending` shows what waits for an answer\n"


ASKS = """
import sys
from serai.model.approvals import Approval
from serai.model.tools import ToolCall
from serai.policy import DecisionStore, CallContext

approval = Approval(id="1", agent="claude", call=ToolCall("bash", {"command": "ls"}, id="c1"))
print(DecisionStore.usual().ask(approval, CallContext(cwd="/", session="s1"), "digest", 3600).id)
"""


@pytest.mark.req("policy.cli.answer", "policy.pending.crash")
def test_what_a_run_left_behind_is_lost_and_can_be_answered(shell: Shell) -> None:
    asked = subprocess.run([sys.executable, "-c", ASKS], env=shell.env, capture_output=True, text=True, check=True)
    id = asked.stdout.strip()
    said = shell("policy", "pending").stdout
    assert said.startswith(f"{id}  bash, asked by claude: lost, its run is gone\n")
    ran = shell("policy", "answer", id, "allow")
    assert ran.stdout == f"{id}: allowed; its run is gone, and takes this when the session goes on\n"


@pytest.mark.req("policy.cli.answer", "policy.pending.crash")
@pytest.mark.parametrize(
    ("options", "decide", "command"),
    [
        (["allow"], "allow", "ls"),
        (["deny", "--why", "never"], "deny", "ls"),
        (["allow", "--arguments", '{"command": "pwd"}'], "allow", "pwd"),
    ],
)
def test_what_is_to_be_remembered_of_a_run_that_is_gone_is_remembered_at_once(
    shell: Shell, store: DecisionStore, options: list[str], decide: str, command: str
) -> None:
    id = subprocess.run([sys.executable, "-c", ASKS], env=shell.env, capture_output=True, text=True, check=True).stdout.strip()
    ran = shell("policy", "answer", id, *options, "--remember", "always")
    assert ran.stdout.endswith("; its run is gone, and takes this when the session goes on; it is remembered from now on\n")
    [known] = store.list_decisions()
    assert (known.scope, known.rule.decide, known.rule.command) == ("always", decide, (command,))


@pytest.mark.req("policy.cli.answer")
def test_words_that_are_no_text_are_spelt_out(shell: Shell, store: DecisionStore) -> None:
    one, two = ask(store), ask_question(store, QuestionItem("Which?"))
    assert read_lines(shell("policy", "answer", one.id, "deny", "--why", ODD, LOGNAME=ODD)) == [f"{one.id}: denied"]
    answered = store.find(one.id)
    assert (answered.decision, answered.answered_by) == (Deny(SPELT), SPELT)
    assert read_lines(shell("policy", "answer", two.id, "--answer", ODD)) == [f"{two.id}: answered"]
    assert store.find(two.id).decision == Answer({"Which?": SPELT})
    three = ask(store, tool="weather")
    assert read_lines(shell("policy", "answer", three.id, "allow", "--remember", "always", "--as", f"weather:city={ODD}")) == [
        f"{three.id}: allowed"
    ]
    assert store.list_decisions()[0].rule.input == {"city": (SPELT,)}


@pytest.mark.req("policy.cli.answer", "policy.pending.process")
async def test_a_run_that_waits_goes_on_with_the_answer_from_another_terminal(shell: Shell, store: DecisionStore) -> None:
    approver = Approver(Policy(Rules(mode="manual"), memory=store), HeadlessSurface(), decisions=store, park=True)
    situation = CallContext(cwd=str(shell.cwd), session="s1", agent="claude")
    call = ToolCall("bash", {"command": "git push"}, id="c1", asker="claude")
    waiting = asyncio.create_task(approver.decide(Approval(id="1", agent="claude", call=call), situation))
    while not (found := store.list_pending()):
        await asyncio.sleep(0)
    argv = shell.argv("policy", "answer", found[0].id, "allow", "--remember", "session")
    answering = await asyncio.create_subprocess_exec(*argv, env=shell.env, stdout=asyncio.subprocess.DEVNULL)
    ruling = await asyncio.wait_for(waiting, 50)
    assert (ruling.allowed, ruling.by) == (True, "person")
    assert await answering.wait() == 0
    again = await approver.decide(Approval(id="2", agent="claude", call=call), situation)
    assert (again.allowed, again.by) == (True, "policy")
    await approver.close()


# -- forget -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def three(store: DecisionStore) -> list[str]:
    """Ids of what is remembered: for a session, for a project, always."""
    where: list[tuple[Any, str]] = [("session", "s1"), ("project", os.path.realpath("/srv")), ("always", "")]
    rules = [parse_rule_flag(f"bash:make {number}") for number in range(3)]
    forms = [type(rule)(id=f"r{at}", decide="allow", tool=rule.tool, command=rule.command) for at, rule in enumerate(rules)]
    return [store.remember(rule, scope, key, None).id for rule, (scope, key) in zip(forms, where, strict=True)]


@pytest.mark.req("policy.cli.answer")
@pytest.mark.parametrize(
    ("options", "left"),
    [
        ([0], [1, 2]),
        ([0, 2, 0], [1]),
        (["--session", "s1"], [1, 2]),
        (["--session", "s2"], [0, 1, 2]),
        (["--project", "/srv"], [0, 2]),
        (["--all"], []),
        ([2, "--session", "s1"], [1]),
    ],
)
def test_what_is_said_is_forgotten(
    shell: Shell, store: DecisionStore, three: list[str], options: list[int | str], left: list[int]
) -> None:
    ran = shell("policy", "forget", *(three[one] if isinstance(one, int) else one for one in options))
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"{3 - len(left)} forgotten\n", "", 0)
    assert {one.id for one in store.list_decisions()} == {three[number] for number in left}


@pytest.mark.req("policy.cli.answer")
def test_the_start_of_an_id_is_enough(shell: Shell, store: DecisionStore, three: list[str]) -> None:
    size = next(size for size in range(1, 9) if len({id[:size] for id in three}) == 3)
    assert shell("policy", "forget", three[0][:size]).stdout == "1 forgotten\n"
    assert three[0] not in {one.id for one in store.list_decisions()}


@pytest.mark.req("policy.cli.answer")
@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ([], 2, "say which: their ids, --all, --session or --project"),
        (["zzzz"], 1, "nothing is remembered as zzzz\n`serai policy list` shows what is remembered\n"),
        ([""], 1, "nothing is remembered as an empty id"),
        (["\x1b[2J"], 1, "nothing is remembered as \\x1b[2J"),
        (["--project", ""], 2, "the path is empty"),
    ],
)
def test_what_cannot_be_forgotten_is_told_and_nothing_else_is_forgotten(
    shell: Shell, store: DecisionStore, three: list[str], options: list[str], status: int, said: str
) -> None:
    for more in ([], [three[0]] if options and status == 1 else []):
        ran = shell("policy", "forget", *more, *options)
        assert (ran.stdout, ran.returncode) == ("", status)
        assert said in ran.stderr
    assert len(store.list_decisions()) == 3


@pytest.mark.req("policy.cli.answer")
def test_what_is_remembered_for_a_folder_or_a_session_of_an_odd_name_is_forgotten(
    shell: Shell, store: DecisionStore, tmp_path: Path
) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    store.remember(Rule(id="r", decide="allow", tool=("t",)), "project", f"{tmp_path}/{SPELT}", None)
    store.remember(Rule(id="r", decide="allow", tool=("t",)), "session", SPELT, None)
    assert read_lines(shell("policy", "forget", "--project", ".", cwd=folder)) == ["1 forgotten"]
    assert read_lines(shell("policy", "forget", "--session", ODD)) == ["1 forgotten"]
    ran = shell("policy", "forget", ODD)
    assert (ran.stderr.splitlines()[0], ran.returncode) == (f"serai: nothing is remembered as {SPELT}", 1)


@pytest.mark.req("policy.cli.answer")
def test_a_row_that_nobody_can_read_is_forgotten_like_any_other(shell: Shell, store: DecisionStore, three: list[str]) -> None:
    for id, options in ((three[0], [three[0]]), (three[1], ["--all"])):
        with closing(sqlite3.connect(shell.home / NAME)) as rows, rows:
            rows.execute("UPDATE decisions SET rule = '{}' WHERE id = ?", [id])
        assert shell("policy", "list").returncode == 1  # what is not known is no yes
        assert read_lines(shell("policy", "forget", *options))
    assert shell("policy", "forget", three[2]).returncode == 1
    assert store.list_decisions() == ()


@pytest.mark.req("policy.cli.answer")
def test_a_user_without_a_name_can_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert policy_approvals._get_user() == f"user {os.getuid()}"
