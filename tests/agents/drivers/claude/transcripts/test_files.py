"""Where transcripts are looked for, and where they are not (spec agents 4.1); and sessions by project."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path

import pytest

from serai.agents.drivers.claude.transcripts.files import InvalidPath, ProjectNotFound, SessionNotFound, to_folder_name
from serai.agents.drivers.claude.transcripts.reader import Transcripts
from serai.errors import BadSession, NoSession
from tests.support.claude.transcripts import TranscriptFolder, assistant, user, uuid


@pytest.mark.req("agents.rule.81")
@pytest.mark.req("agents.scenario.X1")
def test_the_root_is_the_one_given_else_the_programs_own() -> None:
    assert Transcripts("/srv/here", {"CLAUDE_CONFIG_DIR": "/srv/conf"}).root == "/srv/here"
    assert Transcripts(environ={"CLAUDE_CONFIG_DIR": "/srv/conf", "HOME": "/srv/me"}).root == "/srv/conf/projects"
    assert Transcripts(environ={"HOME": "/srv/me"}).root == "/srv/me/.claude/projects"
    assert Transcripts(environ={"CLAUDE_CONFIG_DIR": "", "HOME": "/srv/me"}).root == "/srv/me/.claude/projects"


@pytest.mark.req("agents.scenario.X20")
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/user/_work.d", "-home-user--work-d"),
        ("/a b/ä", "-a-b--"),
        ("/a😀b", "-a--b"),  # two units of UTF-16; seen of 2.1.325
        ("/X9/z", "-X9-z"),
    ],
)
def test_a_path_is_encoded_as_the_program_does_it(path: str, name: str) -> None:
    assert to_folder_name(path) == name


@pytest.mark.req("agents.scenario.X20")
def test_a_name_is_never_decoded_into_a_path(home: TranscriptFolder) -> None:
    (home.root / "-home-user-project").mkdir(parents=True)
    (home.root / "-home-user-project" / f"{uuid(1)}.jsonl").write_text(json.dumps(user("hello there")) + "\n")
    transcripts = home.transcripts()
    assert [project.path for project in transcripts.list_projects()] == [""]
    assert transcripts.get_session(uuid(1)).project_path == ""
    [project] = transcripts.list_projects()
    assert [one.session_id for one in transcripts.list_sessions(project)] == [uuid(1)]  # by what it is, and not by a path


@pytest.mark.req("agents.scenario.X2")
def test_a_project_is_looked_for_in_its_encoded_folder(home: TranscriptFolder, tmp_path: Path) -> None:
    other = tmp_path / "other one"
    home.write(1, user("one two three", cwd=str(home.project)))
    home.write(2, user("four five six", cwd=str(other)), project=other)
    transcripts = home.transcripts()
    assert [one.session_id for one in transcripts.list_sessions(home.project)] == [uuid(1)]
    assert [one.session_id for one in transcripts.list_sessions(str(other))] == [uuid(2)]
    assert {one.session_id for one in transcripts.list_sessions(None)} == {uuid(1), uuid(2)}
    link = tmp_path / "link"
    link.symlink_to(home.project)
    assert [one.session_id for one in transcripts.list_sessions(link)] == [uuid(1)]


@pytest.mark.req("agents.scenario.X2")
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_name_is_found_whether_the_program_composed_it_or_not(home: TranscriptFolder, tmp_path: Path, form: str) -> None:
    project = tmp_path.resolve() / "cafe\u0301"
    named = Path(unicodedata.normalize(form, str(project)))  # type: ignore[arg-type]
    home.write(1, user("one two three", cwd=str(project)), project=named)
    assert len(home.transcripts().list_sessions(project)) == 1


def test_two_paths_of_one_name_keep_their_sessions_apart(home: TranscriptFolder, tmp_path: Path) -> None:
    dotted, dashed = (tmp_path.resolve() / name for name in ("b.c", "b-c"))
    home.write(1, user("of the dot", cwd=str(dotted)), project=dotted)
    home.write(2, user("of the dash", cwd=str(dashed)), project=dashed)
    home.write(3, user("of whoever", cwd=str(tmp_path / "elsewhere")), project=dashed)
    transcripts = home.transcripts()
    assert {one.session_id for one in transcripts.list_sessions(dotted)} == {uuid(1), uuid(3)}
    assert {one.session_id for one in transcripts.list_sessions(dashed)} == {uuid(2), uuid(3)}


@pytest.mark.req("agents.rule.82")
def test_a_long_name_is_found_by_its_first_200_characters(home: TranscriptFolder, tmp_path: Path) -> None:
    projects = [tmp_path.resolve() / ("x" * 150) / ("y" * 100) / name for name in ("one", "two")]
    for number, (project, hashed) in enumerate(zip(projects, ("cfsx9d", "qqoi8e"), strict=True)):
        place = home.root / f"{to_folder_name(str(project))[:200]}-{hashed}"
        place.mkdir(parents=True)
        (place / f"{uuid(number)}.jsonl").write_text(json.dumps(user("hello there", cwd=str(project))) + "\n")
    transcripts = home.transcripts()
    for number, project in enumerate(projects):
        assert [one.session_id for one in transcripts.list_sessions(project)] == [uuid(number)]


@pytest.mark.req("agents.rule.83")
def test_a_projects_path_is_the_rows_else_the_indexs_else_unknown(home: TranscriptFolder, tmp_path: Path) -> None:
    def paths() -> tuple[str, str]:
        transcripts = home.transcripts()
        [project], [session] = transcripts.list_projects(), transcripts.list_sessions(home.project)
        return project.path, session.project_path

    home.write(1, user("hello there"), assistant("hello"))
    assert paths() == ("", "")
    index = home.place() / "sessions-index.json"
    index.write_text(json.dumps({"version": 1, "entries": [], "originalPath": "/of/the/index"}))
    assert paths() == ("/of/the/index", "/of/the/index")
    index.write_text('{"originalPath": ')
    assert paths() == ("", "")
    home.write(1, user("hello there", cwd="/of/the/rows"), assistant("hello", cwd="/of/the/rows/below"))
    assert paths() == ("/of/the/rows", "/of/the/rows")
    assert home.transcripts().get_session(uuid(1)).cwd == "/of/the/rows/below"


@pytest.mark.req("agents.rule.84")
@pytest.mark.req("agents.scenario.X9")
def test_folders_without_a_session_are_no_projects_and_subagents_no_sessions(home: TranscriptFolder, tmp_path: Path) -> None:
    (home.place(tmp_path / "remembers") / "memory").mkdir()
    (home.place(tmp_path / "remembers") / "memory" / "MEMORY.md").write_text("- a note\n")
    home.place(tmp_path / "empty")
    (home.place(tmp_path / "older") / "agent-a20f1682386f69ed7.jsonl").write_text(json.dumps(user("look around")) + "\n")
    home.real("subagent", 3)
    inner = home.place() / uuid(3) / "subagents"
    inner.mkdir(parents=True)
    (inner / "agent-a20f1682386f69ed7.jsonl").write_bytes((Path(__file__).parent / "fixtures/subagent-inner.jsonl").read_bytes())
    aside = [user("look around", isSidechain=True), assistant("I looked", isSidechain=True)]
    home.write(4, *aside, project=tmp_path / "older")  # some named them so
    transcripts = home.transcripts()
    assert [(project.path, project.sessions) for project in transcripts.list_projects()] == [(str(home.project), 1)]
    assert [one.session_id for one in transcripts.list_sessions(None)] == [uuid(3)]
    assert transcripts.list_sessions(tmp_path / "remembers") == transcripts.list_sessions(tmp_path / "older") == []


@pytest.mark.req("agents.rule.87")
def test_what_is_not_there_is_an_empty_list_and_what_cannot_be_is_refused(home: TranscriptFolder, tmp_path: Path) -> None:
    nowhere = Transcripts(tmp_path / "nowhere")
    assert nowhere.list_projects() == []
    assert nowhere.list_sessions(home.project) == nowhere.list_sessions(None) == []
    transcripts = home.transcripts()
    home.write(1, user("hello there"))
    assert transcripts.list_sessions(tmp_path / "unknown") == []
    with pytest.raises(InvalidPath) as invalid:
        transcripts.list_sessions("")
    assert isinstance(invalid.value, BadSession)
    assert (invalid.value.path, invalid.value.cause) == ("", "its path is empty")
    with pytest.raises(InvalidPath):
        transcripts.list_sessions("/a\0b")
    with pytest.raises(SessionNotFound) as missing:
        transcripts.get_session(uuid(9))
    assert isinstance(missing.value, NoSession)
    assert (missing.value.id, "serai agent sessions" in missing.value.hint) == (uuid(9), True)
    with pytest.raises(ProjectNotFound) as none:
        transcripts.project_stats(str(tmp_path / "unknown"))
    assert none.value.path == str(tmp_path / "unknown")


@pytest.mark.req("agents.rule.87")
@pytest.mark.parametrize(
    "id",
    ["", ".", "../secret", f"../{uuid(1)}", f"{uuid(1)}/../{uuid(1)}", f"{uuid(1)}\n", f"{uuid(1)}\0", "x" * 36, "*", uuid(1)[:-1]],
)
def test_an_id_that_is_no_uuid_is_refused_before_it_is_part_of_a_path(
    home: TranscriptFolder, monkeypatch: pytest.MonkeyPatch, id: str
) -> None:
    home.write(1, user("hello there"))
    (home.root / "secret.jsonl").write_text(json.dumps(user("a secret")) + "\n")
    transcripts = home.transcripts()
    joined: list[str] = []
    join = os.path.join

    def watched(first: str, *more: str) -> str:
        joined.append(more[-1])
        return join(first, *more)

    monkeypatch.setattr(os.path, "join", watched)
    for ask in (transcripts.get_session, transcripts.get_session_events, lambda text: transcripts.get_session_summary(text, 1, 1)):
        with pytest.raises(SessionNotFound):
            ask(id)
    assert joined == []


def test_a_start_of_an_id_is_enough_when_it_is_the_only_one(home: TranscriptFolder) -> None:
    home.write("abcd1111-0000-4000-8000-000000000000", user("hello there"))
    home.write("abcd2222-0000-4000-8000-000000000000", user("hello there"))
    transcripts = home.transcripts()
    assert transcripts.resolve("ABCD1") == "abcd1111-0000-4000-8000-000000000000"
    assert transcripts.resolve("abcd1111-0000-4000-8000-000000000000") == "abcd1111-0000-4000-8000-000000000000"
    with pytest.raises(SessionNotFound, match="there is no such session"):
        transcripts.resolve(uuid(7))
    for start, why in (
        ("abcd", "2 sessions begin so"),
        ("abce", "no session begins so"),
        ("a", "no session id"),
        ("../a", "no session id"),
    ):
        with pytest.raises(SessionNotFound, match=why):
            transcripts.resolve(start)


def test_an_id_in_two_projects_is_the_newest(home: TranscriptFolder, tmp_path: Path) -> None:
    old = home.write(1, user("the old copy"))
    new = home.write(1, user("the new copy"), project=tmp_path / "other")
    os.utime(old, (1_000, 1_000))
    assert home.transcripts().get_session(uuid(1)).file == str(new)
    assert home.transcripts().get_session(uuid(1).upper()).first_message == "the new copy"


# -- links


def test_no_link_leads_out_of_the_root(home: TranscriptFolder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / f"{uuid(1)}.jsonl").write_text(json.dumps(user("a secret of somebody else")) + "\n")
    home.place().joinpath(f"{uuid(2)}.jsonl").symlink_to(outside / f"{uuid(1)}.jsonl")
    linked = tmp_path.resolve() / "linked"
    (home.root / to_folder_name(str(linked))).symlink_to(outside)
    transcripts = home.transcripts()
    assert transcripts.list_sessions(None) == transcripts.list_sessions(home.project) == transcripts.list_sessions(linked) == []
    assert transcripts.list_projects() == []
    for number in (1, 2):
        with pytest.raises(SessionNotFound):
            transcripts.get_session(uuid(number))


def test_a_link_from_one_project_to_another_is_followed(home: TranscriptFolder, tmp_path: Path) -> None:
    """People leave one when they move a project."""
    home.write(1, user("hello there", cwd=str(home.project)))
    moved = tmp_path.resolve() / "moved"
    (home.root / to_folder_name(str(moved))).symlink_to(home.place())
    transcripts = home.transcripts()
    assert [one.session_id for one in transcripts.list_sessions(moved)] == [uuid(1)]
    assert [one.session_id for one in transcripts.list_sessions(None)] == [uuid(1)]  # once


def test_the_root_itself_may_be_a_link(home: TranscriptFolder, tmp_path: Path) -> None:
    home.write(1, user("hello there", cwd=str(home.project)))
    (tmp_path / "dotfiles").symlink_to(home.root)
    assert len(Transcripts(tmp_path / "dotfiles").list_sessions(home.project)) == 1


def test_a_projects_sessions_are_its_own(tmp_path: Path) -> None:
    root = tmp_path / "projects"
    for name in ("a", "b"):
        place = root / f"-x-{name}"
        place.mkdir(parents=True)
        id = f"00000000-0000-4000-8000-00000000000{1 if name == 'a' else 2}"
        row: dict[str, object] = {
            "type": "user",
            "sessionId": id,
            "cwd": f"/x/{name}",
            "uuid": id,
            "timestamp": "2026-01-01T00:00:00Z",
        }
        row |= {"message": {"role": "user", "content": f"do {name} now please"}}
        (place / f"{id}.jsonl").write_text(json.dumps(row) + "\n")
    transcripts = Transcripts(str(root))
    projects = transcripts.list_projects()
    assert len(projects) == 2
    for project in projects:
        assert [one.project_path for one in transcripts.list_sessions(project)] == [project.path]
