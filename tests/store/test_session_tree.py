"""Trees, paths and conversations (spec piglet 6.1)."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from serai.errors import NoEntry, NotAllowed, NotWritten
from serai.limits import Limits
from serai.store import StoredSession
from serai.store.entries import SessionEntry
from serai.store.messages import UserMessage
from serai.store.session_tree import TreeRow
from tests.support.stored_sessions import META, TS, create, file_of, line, lines_in, meta, read_tree, short, show, user


def ids(entries: list[SessionEntry]) -> list[str]:
    return [entry.id for entry in entries]


@pytest.mark.req("piglet.rule.session-path")
def test_an_append_is_a_child_of_the_leaf_and_the_new_leaf(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        assert session.leaf == ""
        first, second = session.append_user("a"), session.append_user("b")
        session.set_title("a meta is no entry of the tree")
        third = session.append_user("c")
        assert [entry.parent for entry in (first, second, third)] == ["", first.id, second.id]
        assert session.leaf == third.id
        assert session.read_path() == session.read_tree().find_path() == [first, second, third]
        assert show(session) == ["user: a", "user: b", "user: c"]


@pytest.mark.req("piglet.rule.session-path")
def test_a_compact_replaces_all_before_it(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session.append_user("a")
        session.append_user("b")
        compact = session.compact([UserMessage("short a"), UserMessage("short b")], 900)
        session.append_user("c")
        assert show(session) == ["user: short a", "user: short b", "user: c"]
        assert session.read_tree().decode_messages() == session.read_messages()
        assert len(session.read_path()) == 4
        assert (compact.tokens_before, compact.data[0]["ts"]) == (900, "0001-01-01T00:00:00Z")
        session.compact([])
        assert show(session) == []


def test_a_compact_that_cannot_be_read_does_not_cost_the_history(tmp_path: Path) -> None:
    lines = [meta(), user("a", None, "one"), line("compact", "b", "a", {"no": "list"}), user("c", "b", "two")]
    bad = line(
        "compact", "d", "c", [5, {"type": "user", "data": {"content": "kept"}}, {"type": "user", "data": 7}, {"type": "odd"}]
    )
    with StoredSession(str(file_of(tmp_path, *lines))) as session:
        assert show(session) == ["user: one", "user: two"]
    with StoredSession(str(file_of(tmp_path, *lines, bad))) as session:
        assert show(session) == ["user: kept"]


@pytest.mark.req("piglet.rule.session-custom")
def test_a_custom_message_is_said_and_an_unknown_entry_is_not(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session.append_custom("assistant", "a")
        session.append_custom("user", "b")
        session.append_custom("system", "c")
        fact = session.append_entry("ext:memory:facts", {"n": 1})
        assert show(session) == ["assistant: a", "user: b", "user: c"]
        assert session.read_path()[-1] == fact
        assert (session.leaf, fact.data) == (fact.id, {"n": 1})


@pytest.mark.parametrize("type", ["", "meta", "user", "assistant", "tool_result", "compact", "label", "branch_summary", "event"])
def test_an_extension_may_not_write_what_the_session_writes(tmp_path: Path, type: str) -> None:
    with create(tmp_path) as session, pytest.raises(NotAllowed, match="written by the session itself"):
        session.append_entry(type, {})


@pytest.mark.req("piglet.rule.session-branch")
def test_a_branch_goes_on_from_its_target_and_a_reset_from_nothing(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        first, second = session.append_user("a"), session.append_user("b")
        branch = session.branch(first.id, "tried b")
        assert (branch.parent, branch.data) == (first.id, {"summary": "tried b", "fromId": second.id})
        session.append_user("c")
        assert show(session) == ["user: a", "user: c"]
        left = session.leaf
        reset = session.reset("enough")
        assert (reset.parent, reset.data) == ("", {"summary": "enough", "fromId": left})
        assert "parentId" not in lines_in(session.file)[-1]
        assert show(session) == []
        assert len(session.read_tree().entries) == 5


@pytest.mark.req("piglet.rule.session-branch")
def test_an_entry_that_is_not_there_cannot_be_branched_to_or_labelled(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session.append_user("a")
        before = Path(session.file).read_bytes()
        for act in (session.branch, session.label):
            for id in ("0badf00d", ""):
                with pytest.raises(NoEntry, match=f"entry {id} not found"):
                    act(id, "x")
        assert Path(session.file).read_bytes() == before


@pytest.mark.req("piglet.edge.20")
def test_a_label_advances_the_leaf_and_its_target_is_still_found(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        first, _ = session.append_user("a"), session.append_user("b")
        label = session.label(first.id, "here")
        assert session.leaf == label.id
        assert session.append_user("c").parent == label.id
        assert session.branch(first.id).parent == first.id
        assert show(session) == ["user: a"]
        session.branch(label.id)
        assert show(session) == ["user: a", "user: b"]


def test_the_last_label_counts_and_an_empty_one_clears(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        first, second = session.append_user("a"), session.append_user("b")
        for target, text in ((first, "one"), (second, "two"), (first, "three"), (second, "")):
            session.label(target.id, text)
        tree = session.read_tree()
        assert tree.labels == {first.id: "three"}
        assert [row.label for row in tree.list_rows()][:2] == ["three", ""]


@pytest.mark.req("piglet.edge.19")
@pytest.mark.parametrize(
    ("lines", "path"),
    [
        ([user("a", "gone", "1"), user("b", "a", "2")], ["a", "b"]),  # dangling
        ([user("a", "b", "1"), user("b", "a", "2")], ["a", "b"]),  # a cycle: what is below is not above
        ([user("a", "a", "1")], ["a"]),
        ([user("a", None, "1"), user("a", "a", "2"), user("a", "a", "3")], ["a", "a", "a"]),  # one id, three entries
        ([user("a", None, "1"), user("b", "c", "2"), user("c", "b", "3")], ["b", "c"]),
    ],
)
def test_a_path_ends_where_a_parent_is_not_above(tmp_path: Path, lines: list[bytes], path: list[str]) -> None:
    file = file_of(tmp_path, meta(), *lines)
    tree = read_tree(file)
    assert ids(tree.find_path()) == path
    assert [row.id for row in tree.list_rows() if row.active] == path
    assert len(tree.list_rows()) == len(lines)
    with StoredSession(str(file)) as session:
        assert ids(session.read_path()) == path
        assert len(session.read_messages()) == len(path)


@pytest.mark.req("piglet.rule.session-entry")
def test_entries_without_id_are_named_and_chained(tmp_path: Path) -> None:
    legacy = [line("user", data={"content": text}) for text in ("a", "b", "c")]
    file = file_of(tmp_path, meta(), *legacy[:2], meta(title="x"), legacy[2])
    tree = read_tree(file)
    assert [(entry.id, entry.parent) for entry in tree.entries] == [("L0", ""), ("L1", "L0"), ("L2", "L1")]
    with StoredSession(str(file)) as session:
        assert session.leaf == "L2"
        assert session.append_user("d").parent == "L2"
        assert show(session) == ["user: a", "user: b", "user: c", "user: d"]
        assert session.branch("L0").parent == "L0"
        assert show(session) == ["user: a"]
        assert session.meta.title == "x"


@pytest.mark.req("piglet.rule.session-entry")
def test_the_form_of_an_entry(tmp_path: Path) -> None:
    with create(tmp_path, model="m1") as session:
        session.append_user("a")
        session.append_user("b")
        session.compact([], 7)
        session.compact([])
        metas = [form for form in lines_in(session.file) if form["type"] == "meta"]
        first, second, compact, other = [form for form in lines_in(session.file) if form["type"] != "meta"]
    assert list(first) == ["type", "id", "ts", "data"]
    assert list(second) == ["type", "id", "parentId", "ts", "data"]
    assert list(compact) == ["type", "id", "parentId", "ts", "data", "tokensBefore"]
    assert "tokensBefore" not in other
    assert all(len(form["id"]) == 8 and int(form["id"], 16) >= 0 for form in (first, second, compact))
    assert all(list(form) == ["type", "ts", "data"] for form in metas)
    assert metas[0]["data"].keys() == {"id", "cwd", "model", "createdAt"}


@pytest.mark.req("piglet.rule.session-entry")
def test_the_last_meta_wins_and_keys_of_others_stay(tmp_path: Path) -> None:
    file = file_of(tmp_path, meta(theirs={"x": [1]}), user("a", None, "1"), meta(title="second", theirs={"x": [2]}))
    with StoredSession(str(file)) as session:
        assert (session.meta.title, session.meta.model) == ("second", "m1")
        session.set_title("third")
        session.set_model("m2")
    assert lines_in(file)[-1]["data"] == META | {"title": "third", "model": "m2", "theirs": {"x": [2]}}
    file = file_of(tmp_path, meta(title="good"), line("meta", data={"title": 5}), line("meta", data=[]))
    with StoredSession(str(file)) as session:
        assert session.meta.title == read_tree(file).meta.title == "good"  # type: ignore[union-attr]


def rows(tree_rows: list[TreeRow]) -> list[tuple[str, int, int, bool]]:
    return [(row.id, row.depth, row.children, row.active) for row in tree_rows]


@pytest.mark.req("piglet.rule.session-tree")
def test_the_full_tree_is_in_order(tmp_path: Path) -> None:
    def at(second: int) -> dict[str, str]:
        return {"ts": f"2026-02-03T10:00:{second:02}.000000001Z"}

    file = file_of(
        tmp_path,
        meta(),
        user("late", None, "x", **at(50)),
        user("early", None, "x", **at(5)),  # of the roots the active one does not come first
        user("root", None, "y", **at(10)),
        user("b", "root", "b", **at(30)),
        user("a", "root", "a", **at(20)),
        user("a1", "a", "a1", **at(21)),
        user("c", "root", "c", **at(40)),
        user("c1", "c", "c1", **at(41)),
    )
    assert rows(read_tree(file).list_rows()) == [
        ("early", 0, 0, False),
        ("root", 0, 3, True),
        ("c", 1, 1, True),
        ("c1", 2, 0, True),
        ("a", 1, 1, False),
        ("a1", 2, 0, False),
        ("b", 1, 0, False),
        ("late", 0, 0, False),
    ]


@pytest.mark.req("piglet.rule.session-tree")
def test_a_preview_is_the_first_sixty_code_points(tmp_path: Path) -> None:
    sixty = "é" * 59 + "🐪"
    parts = [{"thinking": "x"}, {"id": "1", "name": "read"}, {"text": "first"}, {"text": "second"}]
    file = file_of(
        tmp_path,
        meta(),
        user("a", None, sixty),
        user("b", "a", sixty + "!"),
        line("assistant", "c", "b", {"content": parts}),
        line("assistant", "d", "c", {"content": parts[:2]}),
        line("tool_result", "e", "d", {"toolCallId": "1", "content": [{"text": "t"}]}),
        line("user", "f", "e", {"content": 5}),
        line("compact", "g", "f", [], tokensBefore=12),
    )
    assert [row.preview for row in read_tree(file).list_rows()] == [sixty, sixty + "...", "first", "", "", "", ""]
    last = read_tree(file).list_rows()[-1]
    assert (last.tokens_before, last.ts, last.parent) == (12, TS, "f")


@pytest.mark.req("piglet.rule.session-fork")
def test_a_fork_begins_with_the_conversation_under_fresh_ids(tmp_path: Path) -> None:
    with create(tmp_path, model="m1", title="mine", agent="claude", agent_session="theirs") as session:
        first = session.append_user("a")
        session.append_user("b")
        session.branch(first.id)
        session.append_custom("assistant", "c")
        session.append_entry("ext:x:y", 1)
        session.append_user("d")
        with session.fork() as fork:
            assert show(fork) == show(session) == ["user: a", "assistant: c", "user: d"]
            assert fork.id != session.id
            assert (fork.meta.model, fork.meta.title, fork.meta.cwd, fork.meta.agent) == ("m1", "", "/app", "claude")
            assert fork.meta.agent_session == ""  # which goes on with the old one
            forms = lines_in(fork.file)
            assert [form["type"] for form in forms] == ["meta", "meta", "user", "assistant", "user"]
            assert "parentId" not in forms[0]["data"]
            assert forms[1]["data"]["parentId"] == session.id
            assert forms[1]["data"]["forkPoint"] == 3
            assert [form.get("parentId") for form in forms[2:]] == [None, forms[2]["id"], forms[3]["id"]]
            assert forms[2]["data"] == lines_in(session.file)[1]["data"]
            assert not {form["id"] for form in forms[2:]} & {entry.id for entry in session.read_tree().entries}
            fork.append_user("only here")
        assert "user: only here" not in show(session)


@pytest.mark.req("piglet.edge.21")
def test_a_fork_has_what_is_left_after_compaction(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session.append_user("a")
        session.compact([UserMessage("short")])
        session.append_user("b")
        with session.fork() as fork:
            assert show(fork) == ["user: short", "user: b"]
            assert [form["type"] for form in lines_in(fork.file)] == ["meta", "meta", "user", "user"]
            assert fork.meta.fork_point == 2


def test_a_long_fork_ends_with_its_meta(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session.append_user("x" * 100_000)
        with session.fork() as fork:
            assert [form["type"] for form in lines_in(fork.file)] == ["meta", "meta", "user", "meta"]


def test_ids_are_never_the_same_in_one_file(tmp_path: Path) -> None:
    """Of as many random ones two would be the same, more likely than not."""
    from serai.store.stored_session import _compute_id

    assert len({_compute_id(offset, 12345) for offset in range(0, 100_000_000, 1000)}) == 100_000


def test_an_id_is_not_that_of_the_parent(tmp_path: Path) -> None:
    from serai.store.stored_session import _compute_id, _compute_key

    start = len(meta())
    size = len(user("00000000", None, "x"))
    clash, other = _compute_id(start + size, _compute_key("6f1c")), _compute_id(start + size + 1, _compute_key("6f1c"))
    with StoredSession(str(file_of(tmp_path, meta(), user(clash, None, "x")))) as session:
        entry = session.append_user("y")
        assert (entry.id, entry.parent) == (other, clash)


def test_a_compact_of_null_is_an_empty_one(tmp_path: Path) -> None:
    lines = [meta(), user("a", None, "one"), line("compact", "b", "a", None), user("c", "b", "two")]
    with StoredSession(str(file_of(tmp_path, *lines))) as session:
        assert show(session) == ["user: two"]


def test_an_odd_key_does_not_cost_the_meta(tmp_path: Path) -> None:
    file = file_of(tmp_path, meta(title="good"), meta(title="newer", model=5, forkPoint="x", parentId=None))
    with StoredSession(str(file)) as session:
        assert (session.meta.title, session.meta.model, session.meta.id) == ("newer", "", "6f1c")
        session.set_title("ours")
        assert lines_in(file)[-1]["data"] == META | {"title": "ours", "model": 5, "forkPoint": "x"}
        session.set_model("m2")
        assert lines_in(file)[-1]["data"]["model"] == "m2"


@pytest.mark.req("piglet.rule.session-fork")
def test_a_fork_has_the_model_that_another_process_chose(tmp_path: Path) -> None:
    with create(tmp_path, model="m1") as ours, StoredSession(ours.file) as theirs:
        theirs.set_model("m2")
        with ours.fork() as fork:
            assert fork.meta.model == "m2"
        theirs.set_model("m3")
        ours.read_messages()
        assert ours.meta.model == "m3"


def test_a_fork_that_would_lose_a_message_is_refused(tmp_path: Path) -> None:
    limits = Limits().but(session_line=2000)
    short, long = user("a", None, "x"), user("b", None, "x" * 1850)
    with StoredSession(
        str(file_of(tmp_path, meta(), short, long[:-1].replace(b'"ts"', b'"parentId":"a","ts"') + b"\n")), limits=limits
    ) as session:
        assert len(session.read_messages()) == 2
        before = sorted(tmp_path.iterdir())
        with pytest.raises(NotWritten, match="too long"):
            session.fork()
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_a_chain_of_a_hundred_thousand_entries_needs_no_recursion(tmp_path: Path) -> None:
    names = [f"{number:08x}" for number in range(100_000)]
    lines = (
        b'{"type":"user","id":"%s","parentId":"%s","data":{"content":"x"}}\n' % (id.encode(), parent.encode())
        for parent, id in itertools.pairwise(["", *names])
    )
    file = file_of(tmp_path, meta(), *lines)
    tree = read_tree(file)
    assert ids(tree.find_path()) == names
    last = tree.list_rows()[-1]
    assert (last.id, last.depth, last.active) == (names[-1], 99_999, True)
    with StoredSession(str(file)) as session:
        assert len(session.read_messages()) == 100_000
        assert short(session.read_messages()[-1]) == "user: x"
