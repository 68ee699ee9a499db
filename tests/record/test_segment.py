"""The file format: what was written comes back, and no damage hides what is whole."""

from __future__ import annotations

from io import BufferedReader, BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.record import segment
from serai.record.segment import Damaged, Dropped, End, Entry, Exit, FrameDirection, Frames, Head, Note, Open, Skipped

HEAD = Head(format=1, run="20261115T120000-abcdef", pid=3, serai="0", command="test", at=1)

ways: st.SearchStrategy[FrameDirection] = st.sampled_from(["sent", "received"])
lines = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b" ") + b"\n")
nasty = st.sampled_from([b"\x1e\n", b'\x1e{"entry":"note","text":"forged"}\n', b"\x1e>1 2 3\n", b"\n", b"\x1e"])
raw_runs = st.lists(lines | nasty, min_size=1, max_size=5).map(b"".join)
runs = raw_runs.map(segment.escape_marks)
frames = st.builds(Frames, wire=st.integers(1, 9), way=ways, at=st.integers(0, 2**53), run=runs)
texts = st.text(max_size=30)
written = (
    st.builds(Note, text=texts, at=st.integers(0, 9))
    | st.builds(Open, wire=st.integers(1, 9), who=texts, kind=texts, generation=st.integers(0, 9))
    | st.builds(End, wire=st.integers(1, 9), why=texts, stderr=texts, exit=st.none() | st.just(Exit(code=3)))
    | st.builds(Skipped, wire=st.integers(1, 9), size=st.integers(0, 2**61), limit=st.integers(0, 9), head=texts)
    | st.builds(Dropped, wire=st.integers(0, 9), frames=st.integers(0, 9), bytes=st.integers(0, 9))
)
entries = st.lists(frames | written, max_size=8)


def to_bytes(items: list[Entry]) -> bytes:
    parts = []
    for item in items:
        if isinstance(item, Frames):
            parts += [segment.pack_frames_head(item.wire, item.way, item.at, len(item.run)), item.run]
        else:
            assert not isinstance(item, Damaged)
            parts.append(segment.pack(item))
    return b"".join(parts)


def from_bytes(data: bytes) -> list[Entry]:
    return [_drop_place(entry) for entry in segment.read(BufferedReader(BytesIO(data)))]


def _drop_place(entry: Entry) -> Entry:
    return Frames(entry.wire, entry.way, entry.at, entry.run) if isinstance(entry, Frames) else entry


@pytest.mark.req("record.frames.exact", "record.damage.forged")
@given(entries)
def test_what_was_written_comes_back_whatever_the_frames_look_like(items: list[Entry]) -> None:
    assert from_bytes(to_bytes([HEAD, *items])) == [HEAD, *items]


@pytest.mark.req("record.damage.forged", "record.frames.exact")
@given(raw_runs)
def test_a_run_is_kept_but_for_what_would_pass_for_an_entry(run: bytes) -> None:
    guarded = segment.escape_marks(run)
    assert [line.removeprefix(b"\x1e") for line in run.split(b"\n")] == [
        line[1:] if original.startswith(b"\x1e") else line
        for line, original in zip(guarded.split(b"\n"), run.split(b"\n"), strict=True)
    ]
    assert b"\n\x1e" not in b"\n" + guarded
    assert len(guarded) == len(run)


@pytest.mark.req("record.damage.any", "record.damage.forged")
@given(entries, st.data())
def test_a_cut_file_gives_everything_before_the_cut_and_nothing_else(items: list[Entry], data: st.DataObject) -> None:
    whole = to_bytes([HEAD, *items])
    cut = data.draw(st.integers(0, len(whole)))
    read = from_bytes(whole[:cut])
    complete = [item for number, item in enumerate([HEAD, *items]) if len(to_bytes([HEAD, *items][: number + 1])) <= cut]
    assert read[: len(complete)] == complete
    rest = read[len(complete) :]
    assert bool(rest) == (len(to_bytes(complete)) < cut)
    for entry in rest:  # of the run that was cut its whole lines, then the damage
        assert isinstance(entry, Frames | Damaged)


@pytest.mark.req("record.damage.any")
@given(entries, entries, st.binary(min_size=1, max_size=60))
def test_what_stands_before_and_after_damage_is_read(before: list[Entry], after: list[Entry], rubbish: bytes) -> None:
    plain = b"?" + rubbish.replace(b"\x1e", b"?") + b"\n"
    read = from_bytes(to_bytes([HEAD, *before, HEAD]) + plain + to_bytes([HEAD, *after]))
    damaged = read[len(before) + 2]
    assert isinstance(damaged, Damaged)
    assert (damaged.offset, damaged.size) == (len(to_bytes([HEAD, *before, HEAD])), len(plain))
    assert [*read[: len(before) + 2], *read[len(before) + 3 :]] == [HEAD, *before, HEAD, HEAD, *after]


@pytest.mark.req("record.damage.any")
@given(entries, st.data())
def test_a_changed_byte_costs_its_own_entry_and_at_most_the_next(items: list[Entry], data: st.DataObject) -> None:
    everything = [HEAD, *items]
    ends = [len(to_bytes(everything[: number + 1])) for number in range(len(everything))]
    whole = bytearray(to_bytes(everything))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    hit = next(number for number, end in enumerate(ends) if place < end)
    read = from_bytes(bytes(whole))
    assert read[:hit] == everything[:hit]
    left = everything[hit + 2 :]
    assert not left or read[-len(left) :] == left


@pytest.mark.req("record.damage.any")
@pytest.mark.parametrize(
    "line",
    [
        b"\x1e>1 2 99999999999999999999\n",
        b"\x1e>1 2 -5\n",
        b"\x1e>a b c\n",
        b'\x1e{"entry":"tomorrow"}\n',
        b"\x1e{\n",
        b"\0" * 99 + b"\n",
    ],
)
def test_an_entry_that_lies_costs_only_itself(line: bytes) -> None:
    note = Note(text="after", at=1)
    first, damaged, last = from_bytes(segment.pack(HEAD) + line + segment.pack(note))
    assert (first, last) == (HEAD, note)
    assert isinstance(damaged, Damaged)
    assert damaged.size == len(line)
