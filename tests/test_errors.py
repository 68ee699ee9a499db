"""The error tree: whose turn it is, what is known, and one cause for all calls that fell together."""

from __future__ import annotations

import json
import signal
from itertools import permutations
from typing import Any

import pytest

from serai import errors
from serai.errors import (
    BadFrame,
    ExitStatus,
    LimitHit,
    LocalError,
    MachineError,
    PeerError,
    PeerGone,
    PeerTimeout,
    Refused,
    SeraiError,
    SpawnFailed,
)

BRANCHES: list[type[SeraiError]] = [LocalError, PeerError, MachineError]
ERRORS: list[type[SeraiError]] = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SeraiError)]
LEAVES = [kind for kind in ERRORS if kind not in (SeraiError, *BRANCHES)]


# -- branches


@pytest.mark.req("wire.errors.branches")
def test_every_leaf_hangs_on_the_branch_of_its_cause() -> None:
    tree = {branch.__name__: {leaf.__name__ for leaf in LEAVES if issubclass(leaf, branch)} for branch in BRANCHES}
    assert tree == {
        "LocalError": {
            "BadExtension",
            "BadSession",
            "BadSettings",
            "BoxNotFound",
            "BoxRefused",
            "Closed",
            "FrameTooBig",
            "NoAgent",
            "NoApproval",
            "NoCommand",
            "NoEntry",
            "NoGuest",
            "NoModel",
            "NoRecording",
            "NoService",
            "NoSession",
            "NoSnapshot",
            "NoTool",
            "NotAllowed",
            "NotCapable",
            "NotTrusted",
            "TurnInFlight",
            "TurnLimit",
        },
        "PeerError": {
            "AgentFailed",
            "BadFrame",
            "BadManifest",
            "BadRequest",
            "GuardDown",
            "HookFailed",
            "ModelFailed",
            "OversizeFrame",
            "PeerGone",
            "PeerStalled",
            "PeerTimeout",
            "Refused",
            "SurfaceFailed",
            "Trapped",
        },
        "MachineError": {"BoxFailed", "NotRecorded", "NotWritten", "SpawnFailed"},
    }


@pytest.mark.req("wire.errors.branches")
@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_has_exactly_one_branch(leaf: type[SeraiError]) -> None:
    assert sum(issubclass(leaf, branch) for branch in BRANCHES) == 1


@pytest.mark.req("wire.errors.branches")
@pytest.mark.parametrize("kind", [SeraiError, *BRANCHES])
def test_the_root_and_the_branches_cannot_be_raised_themselves(kind: type[SeraiError]) -> None:
    with pytest.raises(TypeError, match=f"{kind.__name__} is a branch"):
        kind("it broke")


@pytest.mark.req("wire.errors.branches")
@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_is_caught_by_its_root(leaf: type[SeraiError]) -> None:
    with pytest.raises(SeraiError, match="it broke"):
        raise leaf("it broke")


def test_every_error_is_public() -> None:
    assert {kind.__name__ for kind in ERRORS} <= set(errors.__all__)


# -- attributes


@pytest.mark.req("wire.errors.attributes")
@pytest.mark.parametrize("leaf", LEAVES)
def test_attributes_that_do_not_apply_are_there_and_empty(leaf: type[SeraiError]) -> None:
    error = leaf("it broke")
    assert (error.who, error.id, error.exit, error.stderr, error.limit) == ("", "", None, "", None)
    assert error.hint == leaf.default_hint


@pytest.mark.req("wire.errors.attributes")
def test_an_error_carries_what_it_is_given() -> None:
    known: dict[str, Any] = {
        "who": "zot:weather",
        "id": "42",
        "exit": ExitStatus(code=3),
        "stderr": "boom\n",
        "limit": LimitHit("call", 0.3),
        "hint": "turn it off and on",
    }
    error = PeerGone("it broke", **known)
    assert {name: getattr(error, name) for name in known} == known


@pytest.mark.req("wire.errors.attributes")
@pytest.mark.parametrize(
    ("known", "shown"),
    [
        ({"who": "zot:weather"}, "zot:weather: it broke"),
        ({"exit": ExitStatus(code=3)}, "(exit status 3)"),
        ({"limit": LimitHit("call", 0.3)}, "(limit call = 0.3)"),
        ({"exit": ExitStatus(code=3), "limit": LimitHit("exit_grace", 1.0)}, "(exit status 3; limit exit_grace = 1)"),
        ({"stderr": "\nboom\n"}, "stderr ended with: boom"),
    ],
    ids=["who", "exit", "limit", "exit and limit", "stderr"],
)
def test_the_message_shows_what_is_known(known: dict[str, Any], shown: str) -> None:
    assert shown in str(PeerGone("it broke", **known))


@pytest.mark.req("wire.errors.attributes")
def test_the_message_does_not_speak_of_what_is_not_known() -> None:
    message = str(PeerTimeout("no answer", hint="wait"))
    assert message.startswith("no answer")
    assert not [word for word in ("None", "()", "exit", "limit", "stderr") if word in message]


@pytest.mark.req("wire.errors.attributes")
def test_a_long_stderr_tail_is_cut_in_the_message_and_whole_in_the_attribute() -> None:
    tail = "first line\n" + "x" * 5000 + " last words"
    error = PeerGone("it broke", stderr=tail)
    assert error.stderr == tail
    assert "stderr ended with: …xxx" in str(error)
    assert "last words" in str(error)
    assert len(str(error)) < 1000


@pytest.mark.req("wire.errors.attributes")
def test_the_json_form_has_everything_that_is_known() -> None:
    error = PeerGone(
        "it broke",
        who="zot:weather",
        id="42",
        exit=ExitStatus(signal=signal.SIGKILL),
        stderr="boom",
        limit=LimitHit("call", 0.3),
        hint="turn it off and on",
    )
    assert json.loads(json.dumps(error.to_json())) == {
        "error": "PeerGone",
        "message": "it broke",
        "who": "zot:weather",
        "id": "42",
        "exit": {"code": None, "signal": 9},
        "stderr": "boom",
        "limit": {"name": "call", "value": 0.3},
        "hint": "turn it off and on",
    }


@pytest.mark.req("wire.errors.attributes")
def test_the_json_form_leaves_out_what_is_empty() -> None:
    assert SpawnFailed("it broke").to_json().keys() <= {"error", "message", "hint", "errno"}
    assert PeerGone("it broke").to_json() == {"error": "PeerGone", "message": "it broke", "hint": PeerGone.default_hint}


def test_a_hint_of_its_own_replaces_the_usual_one() -> None:
    assert PeerGone.default_hint
    assert PeerGone("it broke", hint="look there").hint == "look there"


def test_a_refusal_keeps_the_peers_code_and_data() -> None:
    error = Refused("no such method", code=-32601, data=b'{"why":1}', who="piglet:notes", id="7")
    assert (error.code, error.data, error.who, error.id) == (-32601, b'{"why":1}', "piglet:notes", "7")
    assert error.to_json()["code"] == -32601


def test_a_failed_start_keeps_the_machines_number() -> None:
    assert SpawnFailed("cannot start it", errno=2).errno == 2


@pytest.mark.parametrize(
    ("value", "text"), [(67108864, "limit frame = 67108864"), (2.0, "limit frame = 2"), (0.5, "limit frame = 0.5")]
)
def test_a_limit_is_shown_as_a_person_would_write_it(value: float, text: str) -> None:
    assert str(LimitHit("frame", value)) == text


# -- one cause


@pytest.mark.req("wire.errors.one-cause")
@pytest.mark.parametrize("leaf", LEAVES)
def test_all_calls_that_fell_together_have_the_same_cause(leaf: type[SeraiError]) -> None:
    root = leaf("it broke", who="zot:weather")
    fallen = [root.for_call(id) for id in ("1", "2", "3")]
    assert [error.__cause__ for error in fallen] == [root, root, root]
    assert [error.id for error in fallen] == ["1", "2", "3"]
    assert {type(error) for error in fallen} == {leaf}
    assert root.id == ""


@pytest.mark.req("wire.errors.one-cause")
def test_each_fallen_call_knows_all_that_the_cause_knows() -> None:
    root = Refused("it broke", code=5, data=b"raw", who="zot:weather")
    fallen = root.for_call("1")
    assert fallen.to_json() == root.to_json() | {"id": "1"}
    assert (fallen.data, fallen.args) == (root.data, root.args)


# -- four outcomes


@pytest.mark.req("wire.errors.four-outcomes")
def test_spawn_failure_time_out_bad_answer_and_refusal_are_four_different_errors() -> None:
    outcomes: list[type[SeraiError]] = [SpawnFailed, PeerTimeout, BadFrame, Refused]
    assert not [(one, other) for one, other in permutations(outcomes, 2) if issubclass(one, other)]


def test_a_time_out_is_also_pythons_own() -> None:
    with pytest.raises(TimeoutError, match="no answer"):
        raise PeerTimeout("no answer")


# -- exit status


@pytest.mark.req("wire.errors.exit-status")
@pytest.mark.parametrize(
    ("status", "text", "ok"),
    [
        (ExitStatus(code=0), "exit status 0", True),
        (ExitStatus(code=3), "exit status 3", False),
        (ExitStatus(signal=signal.SIGKILL), "killed by SIGKILL", False),
        (ExitStatus(signal=signal.SIGSEGV), "killed by SIGSEGV", False),
        (ExitStatus(signal=signal.SIGRTMIN + 5), f"killed by signal {signal.SIGRTMIN + 5}", False),
        (ExitStatus(), "exit status unknown", False),
    ],
    ids=str,
)
def test_an_exit_status_tells_a_code_from_a_signal_from_unknown(status: ExitStatus, text: str, ok: bool) -> None:
    assert str(status) == text
    assert status.ok is ok
