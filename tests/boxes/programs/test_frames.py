"""The box server's frames and values without a box server, and a real one that is sent nonsense."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.boxes.programs.box_server import FILE, SIZE, VERBS
from serai.boxes.programs.frames import FRAME, Refusal, TooLarge, check_members, decode, encode, format_duration, take_frame
from tests.support.boxes import box_servers
from tests.support.boxes.box_servers import SOURCES, ServerProcess, start_server
from tests.support.profiles import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with start_server(tmp_path) as server:
        yield server


@given(st.lists(st.binary(max_size=50)), st.data())
def test_frames_come_out_as_they_went_in_however_the_bytes_arrive(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    arrived, found, at = bytearray(), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, len(stream) - at))
        arrived += stream[at : at + step]
        at += step
        while (frame := take_frame(arrived, 4, FRAME)) is not None:
            found.append(frame[4:])
    assert found == bodies
    assert not arrived


@pytest.mark.req("hooks.rule.4-framing")
def test_a_frame_above_the_limit_is_refused_before_it_is_there() -> None:
    assert take_frame(bytearray((FRAME).to_bytes(4, "big")), 4, FRAME) is None
    with pytest.raises(TooLarge, match="frame too large: 16777217 bytes"):
        take_frame(bytearray((FRAME + 1).to_bytes(4, "big")), 4, FRAME)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_a_frame_holds_is_a_request_or_a_refusal(body: bytes) -> None:
    try:
        verb, data = decode(body)
    except Refusal:
        return
    assert isinstance(verb, str)
    assert isinstance(data, dict)


@given(st.text(), st.dictionaries(st.text(), JSON))
def test_requests_are_read_as_json_says(verb: str, data: dict[str, Any]) -> None:
    assert decode(json.dumps({"verb": verb, "data": data}).encode()) == (verb, data)
    assert decode(json.dumps({"verb": verb, "data": data}, ensure_ascii=False, indent=1).encode()) == (verb, data)


@pytest.mark.parametrize(
    "body", [b"", b" ", b"{", b'{"verb": "x"} {}', b'{"verb": "\xff"}', b'{"verb": "\\q"}', b"[" * 100_000, b"[]", b'{"verb": 1}']
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal, match="malformed request"):
        decode(body)


@given(st.sampled_from([known for _, known in VERBS.values()] + [FILE, SIZE]), st.data())
def test_values_have_the_type_of_their_default_or_are_refused_by_name(known: dict[str, Any], data: st.DataObject) -> None:
    given_ = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(known, JSON)))
    try:
        values = check_members(given_, known)
    except Refusal as error:
        why = str(error)
        assert any(f'"{name}"' in why for name in given_)
        return
    assert set(values) == set(known)
    assert all(type(values[name]) is type(known[name]) for name in known)
    assert all(values[name] == (known[name] if given_.get(name) is None else given_[name]) for name in known)


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.booleans()))
def test_answers_are_json(data: dict[str, Any]) -> None:
    frame = encode({"data": data})
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert json.loads(frame[4:]) == {"data": data}


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (300_000_000_000, "5m0s"),
        (1_500_000_000, "1.5s"),
        (300_000_000, "300ms"),
        (3_600_000_000_000, "1h0m0s"),
        (61_000_000_001, "1m1.000000001s"),
        (1_500, "1.5µs"),
        (7, "7ns"),
    ],
)
def test_durations_are_written_as_the_reference_does(nanoseconds: int, text: str) -> None:
    assert format_duration(nanoseconds) == text


def test_a_box_server_imports_little(tmp_path: Path) -> None:
    """Every box waits for these imports; regular expressions and enumerations alone would double them."""
    program = f"import sys; sys.path.insert(0, {SOURCES!r}); import serai.boxes.programs.box_server; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    heavy = {"json", "re", "enum", "typing", "socket", "signal", "subprocess", "threading", "dataclasses", "asyncio", "msgspec"}
    assert not heavy & set(ran.stdout.split())


@pytest.mark.req("hooks.rule.4-framing", "hooks.scenario.porter-18")
def test_an_oversize_frame_is_answered_and_the_connection_closed(server: ServerProcess) -> None:
    with server.connect() as wire:
        wire.socket.sendall((FRAME + 1).to_bytes(4, "big"))
        with pytest.raises(box_servers.Refusal, match=f"^frame too large: {FRAME + 1} bytes$"):
            wire.answer()
        assert wire.read_all() == b""
    assert server.ask("hello")["porter"] == 1


@pytest.mark.req("hooks.scenario.porter-20")
def test_an_unknown_verb_is_an_error_and_the_connection_goes_on(server: ServerProcess) -> None:
    with server.connect() as wire:
        with pytest.raises(box_servers.Refusal, match='^unknown verb "juggle"$'):
            wire.ask("juggle")
        assert wire.ask("hello") == {"porter": 1, "pid": server.process.pid, "initialised": False}


@pytest.mark.req("hooks.scenario.porter-21")
@pytest.mark.parametrize(
    ("verb", "data", "why"),
    [
        ("exec", {"cmd": "ls"}, '"cmd" must be a list'),
        ("exec", {"cmd": ["ls", 1]}, '"cmd" must be a list of texts'),
        ("exec", {"cmd": ["l\0s"]}, '"cmd" must be a list of texts'),
        ("exec", {"cmd": ["ls"], "env": {"A=B": "x"}}, '"env" must have names'),
        ("exec", {"cmd": ["ls"], "env": {"A": 1}}, '"env" must have names'),
        ("exec", {"cmd": ["ls"], "timeout": -1}, '"timeout" must not be negative'),
        ("exec", {"cmd": ["ls"], "timeout": True}, '"timeout" must be an integer'),
        ("exec", {"cmd": ["ls"], "stdin": "!"}, '"stdin" must be base64'),
        ("exec", {"cmd": ["ls"], "cwd": "/nowhere"}, "cwd /nowhere: No such file"),
        ("exec", {"cmd": ["\ud800"]}, "exec: UnicodeEncodeError"),
        ("exec", {"cmd": ["ls"], "timeout": 10**400}, "exec: OverflowError"),
        ("init", {"files": [1]}, '"files" must be a list of objects'),
        ("init", {"files": [{"Path": 1}]}, '"Path" must be a text'),
        ("init", {"files": [{"Path": "/a", "Content": "a"}]}, '"Content" must be base64'),
        ("init", {"files": [{"Path": "/a", "Mode": "0600"}]}, '"Mode" must be an integer'),
        ("init", {"files": [{"Path": "/a", "UID": 2**32 - 1}]}, "no owner"),
        ("init", {"env": ["A"]}, '"env" must have names'),
        ("init", {"env": [1]}, '"env" must have names'),
        ("init", {"init_script": 1}, '"init_script" must be a text'),
        ("getfile", {}, "is no path"),
        ("signal", {"signal": 99}, "there is no signal 99"),
    ],
)
def test_a_malformed_payload_is_an_error_that_names_the_field(
    server: ServerProcess, verb: str, data: dict[str, Any], why: str
) -> None:
    with server.connect() as wire:
        with pytest.raises(box_servers.Refusal) as refusal:
            wire.ask(verb, **data)
        assert why in str(refusal.value)
        assert wire.ask("hello")["porter"] == 1


@pytest.mark.req("hooks.scenario.porter-21")
def test_data_that_is_no_object_is_an_error(server: ServerProcess) -> None:
    with server.connect() as wire:
        for body in (b"nonsense", b'{"verb": "hello", "data": []}', b'{"verb": "hello", "data": 0}'):
            wire.send_body(body)
            with pytest.raises(box_servers.Refusal):
                wire.answer()
        assert wire.ask("hello")["porter"] == 1


def test_no_nonsense_ends_a_box_server(tmp_path: Path) -> None:
    values = st.none() | st.booleans() | st.integers(-10, 70000) | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
    names = sorted({name for _, known in VERBS.values() for name in known})
    with start_server(tmp_path) as server:

        @settings(max_examples=examples(80), deadline=None)
        @given(st.sampled_from(sorted(VERBS)), st.dictionaries(st.sampled_from(names), values), st.binary(max_size=20))
        def send(verb: str, data: dict[str, Any], rest: bytes) -> None:
            with server.connect() as wire:
                wire.send(verb, {**data, "cmd": 5}, rest)
                wire.end()  # so that whatever waits for more gives up
                wire.read_all()
            assert server.ask("hello")["porter"] == 1

        send()
        assert server.log == ""
