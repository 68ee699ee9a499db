"""`serai trust` as a person calls it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.guests import Shell, guest, objects


def ours(shell: Shell, name: str = "one") -> Path:
    return shell.cwd / ".zot" / "extensions" / name


def tools(shell: Shell) -> list[str]:
    return [form["name"] for form in objects(shell("tool", "list", "--json"))]


def test_a_projects_guest_comes_in_only_once_it_is_trusted(shell: Shell) -> None:
    folder = guest(ours(shell), tools=["ping"])
    before = shell("tool", "list")
    assert before.stdout == ""
    assert f"not trusted: zot:one in {folder}: it was never trusted; `serai trust` in that folder lets it start\n" in before.stderr
    ran = shell("trust")
    said = ran.stdout.splitlines()
    assert said[0] == f"trusted zot:one: {folder}"
    assert said[1].startswith("  runs ")
    assert said[1].endswith(" -I -S ./guest.py")
    assert said[2:] == ["  before: it was never trusted"]
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert tools(shell) == ["ping"]


def test_a_project_is_named_by_its_path(shell: Shell, tmp_path: Path) -> None:
    guest(ours(shell), tools=["ping"])
    ran = shell("trust", shell.cwd.name, "--json", cwd=tmp_path)
    [form] = objects(ran)
    assert form["project"] == str(shell.cwd)
    assert tools(shell) == ["ping"]


def test_what_a_guest_gets_by_being_trusted_is_told(shell: Shell) -> None:
    guest(ours(shell), tools=["read"], guest_toml='env = ["GIT_KEY"]\nreplace = ["read"]\n')
    assert "  gets what it asks for: env GIT_KEY, replace read\n" in shell("trust").stdout
    assert tools(shell) == ["read"]
    [form] = objects(shell("trust", "--json"))
    assert form["guests"][0]["asks"] == {"env": ["GIT_KEY"], "replace": ["read"]}


def test_what_has_changed_since_is_told_and_trusted_anew(shell: Shell) -> None:
    folder = guest(ours(shell), tools=["ping"])
    shell("trust")
    assert "  before: the same\n" in shell("trust").stdout
    with (folder / "guest.py").open("a") as file:
        file.write("# changed\n")
    assert tools(shell) == []
    [form] = objects(shell("trust", "--json"))
    [one] = form["guests"]
    assert (one["id"], one["folder"]) == ("zot:one", str(folder))
    assert one["command"][1:] == ["-I", "-S", "./guest.py"]
    assert one["before"] == "it has changed since it was trusted: guest.py"
    assert tools(shell) == ["ping"]


def test_trust_is_withdrawn(shell: Shell) -> None:
    guest(ours(shell), tools=["ping"])
    shell("trust")
    assert shell("trust", "--withdraw").stdout == f"{shell.cwd}: its guests are not trusted any longer\n"
    assert tools(shell) == []
    assert "was not trusted before" in shell("trust", "--withdraw").stderr
    assert objects(shell("trust", "--withdraw", "--json")) == [{"project": str(shell.cwd), "withdrawn": False}]


def test_a_project_without_guests_has_nothing_to_trust(shell: Shell) -> None:
    ran = shell("trust")
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", f"{shell.cwd}: there is nothing to trust, it has no guests\n", 0)
    assert objects(shell("trust", "--json")) == [{"project": str(shell.cwd), "guests": []}]


def test_a_broken_guest_is_left_out_and_told(shell: Shell) -> None:
    guest(ours(shell), tools=["ping"])
    (guest(ours(shell, "bad")) / "extension.json").write_text("{")
    ran = shell("trust")
    assert "trusted zot:one: " in ran.stdout
    assert ran.stderr.startswith(f"left out: {ours(shell, 'bad')}: parse manifest: ")


def test_what_is_no_folder_is_told(shell: Shell) -> None:
    ran = shell("trust", "nowhere")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "nowhere: not a directory" in ran.stderr
