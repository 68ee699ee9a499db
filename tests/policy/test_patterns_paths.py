"""Where paths lead on a real disk, and patterns over that."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.policy.call_facts import CallContext
from serai.policy.patterns import PathPattern, escape_glob, list_candidates, resolve_path
from tests.support.policy.rules import check, judge_call, policy, rule, subject
from tests.support.profiles import examples

INSIDE = rule("allow", tool="read", path="./**")
NO_SECRETS = rule("deny", path=["/etc/**", "**/secret"])


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A project with links of every kind, beside a folder that is none of its business."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("x")
    project = tmp_path / "project"
    (project / "deep" / "er").mkdir(parents=True)
    (project / "file").write_text("x")
    links = {
        "out": "../outside",
        "to-secret": "../outside/secret",
        "within": "deep/er",
        "loop": "pool",
        "pool": "loop",
        "self": "self/x",
        "not-yet": "../outside/later",
        "absolute": str(tmp_path / "outside"),
        "secret": "file",
    }
    for name, target in links.items():
        (project / name).symlink_to(target)
    (tmp_path / "entry").symlink_to(project)
    return project


def resolve(path: str, cwd: Path) -> str:
    found = resolve_path(path, os.path.realpath(cwd))
    assert not found.odd
    return found.path


@pytest.mark.req("policy.rule.path")
@pytest.mark.parametrize(
    ("path", "leads"),
    [
        ("file", "project/file"),
        ("./deep//./er/", "project/deep/er"),
        ("", "project"),
        (".", "project"),
        ("..", "."),
        ("new/file/that/comes", "project/new/file/that/comes"),
        ("out/secret", "outside/secret"),
        ("to-secret", "outside/secret"),
        ("absolute/secret", "outside/secret"),
        ("not-yet", "outside/later"),
        ("within/../../file", "project/file"),
        ("out/../project/file", "project/file"),
        ("new/../../outside/secret", "outside/secret"),
        ("file\n", "project/file\n"),
        ("a*b\\c?", "project/a*b\\c?"),
        ("\udcff", "project/\udcff"),
        ("FILE", "project/FILE"),
    ],
)
def test_a_path_leads_where_the_kernel_goes(disk: Path, path: str, leads: str) -> None:
    assert resolve(path, disk) == os.path.normpath(disk.parent / leads)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["file", "out", "within", "deep", "er", "..", ".", "", "new", "absolute"]), max_size=6))
def test_what_is_there_is_found_where_the_system_finds_it(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    disk = tmp_path_factory.getbasetemp() / "shared"
    if not disk.exists():
        (disk / "outside").mkdir(parents=True)
        (disk / "deep" / "er").mkdir(parents=True)
        (disk / "file").write_text("x")
        (disk / "out").symlink_to("outside/..")
        (disk / "within").symlink_to("deep/er")
        (disk / "absolute").symlink_to(disk / "deep")
    path = "/".join(names)
    if not path.startswith("/") and (disk / path).exists():
        assert os.path.samefile(resolve(path, disk), disk / path)
        assert resolve(path, disk) == os.path.realpath(disk / path)


def test_it_does_not_matter_through_which_link_the_folder_was_entered(disk: Path) -> None:
    entered = CallContext(cwd=str(disk.parent / "entry"))
    assert subject("read", {"path": "file"}, entered).places.values == (str(disk / "file"),)
    assert check(INSIDE, "read", {"path": str(disk / "file")}, entered).answer == "yes"
    assert check(INSIDE, "read", {"path": str(disk.parent / "entry" / "file")}, entered).answer == "yes"
    assert check(INSIDE, "read", {"path": str(disk.parent / "entry")}, entered).answer == "yes"
    assert check(INSIDE, "read", {"path": str(disk.parent)}, entered).answer == "no"


def test_a_folder_that_is_gone_still_has_an_inside(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert check(INSIDE, "read", {"path": "x"}, CallContext(cwd=str(gone))).answer == "yes"
    assert check(INSIDE, "read", {"path": "../x"}, CallContext(cwd=str(gone))).answer == "no"


@pytest.mark.req("policy.rule.path")
@pytest.mark.parametrize(
    "path",
    [
        *(
            "..",
            "../outside/secret",
            "out",
            "out/secret",
            "to-secret",
            "not-yet",
            "absolute/new",
            "/etc/passwd",
            "//etc/passwd",
            "/",
        ),
        *(
            "~",
            "~/x",
            "~root/x",
            " /etc/passwd",
            "/etc/passwd\n",
            "@/etc/passwd",
            "@../x",
            "new/../../outside",
            "within/../../../x",
        ),
    ],
)
def test_nothing_outside_is_allowed_as_inside(disk: Path, path: str) -> None:
    assert check(INSIDE, "read", {"path": path}, CallContext(cwd=str(disk))).answer == "no"


@pytest.mark.parametrize("path", ["file", ".", "", "deep/..", "within/../er", "new/x", "@file", " file ", "self\\", "a*", "file/"])
def test_what_is_inside_is_allowed(disk: Path, path: str) -> None:
    assert check(INSIDE, "read", {"path": path}, CallContext(cwd=str(disk))).answer == "yes"
    assert check(INSIDE, "read", {"path": str(disk / path.strip())}, CallContext(cwd=str(disk))).answer == "yes"


@pytest.mark.req("policy.rule.path")
def test_tools_that_take_dots_away_before_they_look_are_counted_too(disk: Path) -> None:
    """`within/../to-secret` is deep/to-secret to the kernel, which is not there, and to-secret to many programs."""
    for cwd in (disk, disk.parent / "entry"):
        assert check(INSIDE, "read", {"path": "within/../to-secret"}, CallContext(cwd=str(cwd))).answer == "no"
        assert check(NO_SECRETS, "read", {"path": "within/../to-secret"}, CallContext(cwd=str(cwd))).answer == "yes"


@pytest.mark.req("policy.rule.path")
def test_a_rule_that_denies_means_the_path_as_it_is_written_too(disk: Path) -> None:
    here = CallContext(cwd=str(disk))
    assert check(NO_SECRETS, "read", {"path": "secret"}, here).answer == "yes"  # a link to `file`
    assert check(NO_SECRETS, "read", {"path": "to-secret"}, here).answer == "yes"  # a link from another name
    assert check(NO_SECRETS, "read", {"path": "file"}, here).answer == "no"
    assert check(rule("allow", path="**/secret"), "read", {"path": "secret"}, here).answer == "no"


@pytest.mark.req("policy.rule.path")
@pytest.mark.parametrize("path", ["/etc/passwd", "//etc/passwd", "/./etc/x/../passwd", " /etc/passwd ", "@/etc/passwd", "/etc"])
def test_a_rule_that_denies_is_not_got_around_by_spelling(disk: Path, path: str) -> None:
    assert check(NO_SECRETS, "read", {"path": path}, CallContext(cwd=str(disk))).answer == "yes"


def test_a_link_that_is_made_later_counts_at_the_next_call(disk: Path) -> None:
    here = CallContext(cwd=str(disk))
    assert check(INSIDE, "read", {"path": "new"}, here).answer == "yes"
    (disk / "new").symlink_to("/etc/passwd")
    assert check(INSIDE, "read", {"path": "new"}, here).answer == "no"


@pytest.mark.req("policy.rule.path")
def test_a_rule_that_allows_does_not_follow_its_own_links_and_one_that_denies_does(disk: Path) -> None:
    """Else whoever makes a link where a rule allows something would decide what that is."""
    here = CallContext(cwd=str(disk))
    for pattern in ("./out/**", "./to-secret", f"{disk}/absolute/**", "./secret", "./within/**"):
        leads = str(resolve_path(pattern.removesuffix("/**"), str(disk)).path)
        for path in (pattern.removesuffix("/**"), leads):
            assert check(rule("allow", path=pattern), "read", {"path": path}, here).answer == "no", (pattern, path)
            assert check(rule("deny", path=pattern), "read", {"path": path}, here).answer == "yes", (pattern, path)
    assert check(rule("allow", cwd="./out"), "bash", {"cwd": "out"}, here).answer == "no"
    assert check(rule("deny", cwd="./out"), "bash", {"cwd": "../outside"}, here).answer == "yes"


def test_a_tilde_is_the_home_folder_or_a_name(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(disk / "ho*me"))
    root = pwd.getpwuid(0).pw_dir
    assert list_candidates("~/x") == (("~/x", f"{disk}/ho*me/x"), "")
    assert list_candidates("~root/x")[0] == ("~root/x", f"{root}/x")
    here = CallContext(cwd=str(disk / "deep"))
    assert check(INSIDE, "read", {"path": "~/x"}, here).answer == "no"
    assert PathPattern("~/**").allows(f"{disk}/ho*me/x", "/")
    assert not PathPattern("~/**").allows(f"{disk}/home/x", "/")
    assert PathPattern("./~/x").allows(f"{disk}/~/x", str(disk))


@pytest.mark.req("policy.rule.path-odd")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("a\0b", "a path with a NUL in it"),
        ("\ud800", "a path with half a character in it"),
        ("~\ud800/x", "a path with half a character in it"),
        ("a" * 5000, "a path longer than 4096 bytes"),
        ("a" * 300, "a path longer than can be followed"),
        ("loop", "a loop of links in its path"),
        ("loop/x", "a loop of links in its path"),
        ("self", "a loop of links in its path"),
        ("loop/../file", "a loop of links in its path"),
        ("/proc/self/root/etc/hosts", "a path through /proc, which leads elsewhere for each process"),
        ("/proc/self/cwd/file", "a path through /proc, which leads elsewhere for each process"),
        ("/dev/fd/3", "a path through /proc, which leads elsewhere for each process"),
        ("file:///nowhere/file", "a URL where a path should be"),
        (7, "a path that is no text"),
        ({"path": "file"}, "a path that is no text"),
        (["file", ["file"]], "a path that is no text"),
        (True, "a path that is no text"),
    ],
)
def test_a_path_that_cannot_be_known_is_never_allowed_and_asked_where_it_may_be_denied(disk: Path, said: object, why: str) -> None:
    here = CallContext(cwd=str(disk))
    everywhere = rule("allow", path=["/**", "./**"])
    assert check(everywhere, "read", {"path": said}, here) == ("no", f"it has {why}", True)
    nowhere = rule("deny", path="/nowhere/else/**")
    assert check(nowhere, "read", {"path": said}, here) == ("maybe", f"it has {why}", True)
    assert judge_call(policy(nowhere, mode="skip"), "read", {"path": said}, here).decision == "ask"


def test_what_leads_through_proc_is_denied_where_it_leads_now(disk: Path) -> None:
    assert check(NO_SECRETS, "read", {"path": "/proc/self/root/etc/hosts"}, CallContext(cwd=str(disk))).answer == "yes"


@pytest.mark.req("policy.rule.path-odd")
def test_a_link_too_deep_to_be_looked_at_is_not_taken_for_a_name(tmp_path: Path) -> None:
    """From inside the folder it can be opened; by its full name it is too long for the kernel."""
    names = ["d" * 200] * 20 + ["d" * 60]  # with a `/link/../x` just what the kernel takes
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for name in names:
            os.mkdir(name, dir_fd=here)
            deeper = os.open(name, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
        os.symlink("/etc", "link", dir_fd=here)
    finally:
        os.close(here)
    below = "/".join(names)
    assert resolve_path(f"{below}/link/../x", str(tmp_path)).odd == "a path longer than can be followed"
    assert check(INSIDE, "read", {"path": f"{below}/link"}, CallContext(cwd=str(tmp_path))).answer == "no"
    assert check(INSIDE, "read", {"path": f"{below}/link/../x"}, CallContext(cwd=str(tmp_path))).answer == "no"


@pytest.mark.req("policy.rule.path-reach")
@pytest.mark.parametrize(
    ("tool", "arguments", "allowed"),
    [
        ("find", {}, True),
        ("find", {"pattern": "**/*.py"}, True),
        ("find", {"pattern": "*.{ts,tsx}"}, True),
        ("find", {"pattern": "{src,te/st}/**"}, True),
        ("find", {"pattern": "deep/*", "path": "."}, True),
        ("grep", {"pattern": "../x", "glob": "*.py"}, True),  # of grep it is what is looked for
        ("grep", {"glob": "!*.py"}, True),
        ("grep", {"path": ["deep", "within"], "glob": "*"}, True),
        ("find", {"pattern": "/etc/*"}, False),
        ("find", {"pattern": "/*"}, False),
        ("find", {"pattern": "../*"}, False),
        ("find", {"pattern": "*/../../x"}, False),
        ("find", {"pattern": "{..,x}/y"}, False),
        ("find", {"pattern": "{.,}{.,}/y"}, False),
        ("find", {"pattern": "{/etc,x}/passwd"}, False),
        ("find", {"pattern": "\\.\\./x"}, False),
        ("find", {"pattern": "@(.)./x"}, False),
        ("find", {"pattern": "~/*"}, False),
        ("find", {"pattern": "out/*"}, False),
        ("find", {"pattern": ["*.py", "/etc/*"]}, False),
        ("find", {"pattern": {"a": 1}}, False),
        ("find", {"path": "deep", "pattern": "../../*"}, False),
        ("find", {"directory": "deep", "pattern": "away/*"}, False),
        ("find", {"path": "out"}, False),
        ("grep", {"path": ["deep", "/etc"]}, False),
        ("grep", {"glob": "../**"}, False),
        ("grep", {"include": "/etc/*"}, False),
        ("read", {"path": "file", "file": "/etc/passwd"}, False),
        ("read", {}, False),
    ],
)
def test_what_patterns_can_reach_counts(disk: Path, tool: str, arguments: dict[str, object], allowed: bool) -> None:
    (disk / "deep" / "away").symlink_to("/etc")
    inside = rule("allow", path="./**")
    assert (check(inside, tool, arguments, CallContext(cwd=str(disk))).answer == "yes") is allowed


@pytest.mark.req("policy.rule.path-reach")
def test_a_search_through_a_folder_may_meet_what_is_denied_in_it(disk: Path) -> None:
    here = CallContext(cwd=str(disk))
    keys = rule("deny", path=["**/*.key", "./deep/er/**"])
    assert check(keys, "grep", {"pattern": "x"}, here) == (
        "maybe",
        f"it looks through all of {disk}, and `**/*.key` may be in there",
        True,
    )
    deep = rule("deny", path="./deep/er/**")
    assert [check(deep, "grep", {"path": path}, here).answer for path in (".", "deep", "within", "file")] == [
        "maybe",
        "maybe",
        "yes",
        "no",
    ]
    assert check(deep, "find", {"path": "."}, here).answer == "no"  # of files it tells no more than their names


def test_a_relative_path_may_begin_where_the_call_wants_to_run(disk: Path) -> None:
    (disk / "deep" / "x").symlink_to("/etc/passwd")
    assert check(INSIDE, "read", {"path": "x"}, CallContext(cwd=str(disk))).answer == "yes"
    assert check(INSIDE, "read", {"path": "x", "cwd": "deep"}, CallContext(cwd=str(disk))).answer == "no"


# -- patterns ---------------------------------------------------------------------------------------------------------------------


def glob_matches(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(glob_matches(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and glob_matches(pattern[1:], name[1:])


def names_match(patterns: list[str], names: list[str]) -> bool:
    """What a pattern means, by trying everything."""
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(names_match(patterns[1:], names[at:]) for at in range(len(names) + 1))
    return bool(names) and glob_matches(patterns[0], names[0]) and names_match(patterns[1:], names[1:])


@settings(max_examples=examples(500), deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "**", "*", "a*", "*b", "?", "a?b", "*a*b"]), min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "b", "ab", "aab", "a\nb", "bab", "/"]).filter(lambda name: name != "/"), max_size=6),
)
def test_a_pattern_matches_what_the_reference_matches(patterns: list[str], names: list[str]) -> None:
    root = "/not-there"
    pattern = PathPattern("/".join([root, *patterns]))
    assert pattern.allows("/".join([root, *names]), "/") is names_match(patterns, names)
    if patterns[0] == "**":
        anywhere = PathPattern("/".join(patterns))
        assert anywhere.allows("/" + "/".join(names), "/x") is names_match(patterns, names)


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=5), max_size=4))
def test_an_escaped_path_means_itself(names: list[str]) -> None:
    place = "/".join(["/not-there", *(name for name in names if name not in (".", ".."))])
    assert PathPattern(escape_glob(place)).allows(place, "/")
    assert not PathPattern(escape_glob(place)).allows(f"{place}x", "/")


@pytest.mark.parametrize(
    ("pattern", "place", "matches"),
    [
        ("./**", "/p", True),
        ("./**", "/p/a/b", True),
        ("./**", "/pa", False),
        ("*.py", "/p/a.py", True),
        ("*.py", "/p/a/a.py", False),
        ("a", "/p/a", True),
        ("a", "/p/a/b", False),
        ("a/", "/p/a", True),
        ("*/", "/p/a", True),
        ("a//*", "/p/a/b", True),
        ("*/./b", "/p/a/b", True),
        ("../*", "/q", True),
        ("/", "/", True),
        ("/**", "/", True),
        ("**", "/anything/at/all", True),
        ("**/.env", "/.env", True),
        ("**/.env", "/a/b/.env", True),
        ("**/.env", "/a/.env/b", False),
        ("**/.git/**", "/a/.git", True),
        ("**/.git/**", "/a/.github/.git/config", True),
        ("/*", "/", False),
        ("/a\\*/b", "/a*/b", True),
        ("/a\\*/b", "/ax/b", False),
    ],
)
def test_patterns_mean_what_their_docstring_says(pattern: str, place: str, matches: bool) -> None:
    assert PathPattern(pattern).allows(place, "/p") is matches


@pytest.mark.parametrize("pattern", ["", "a\0", "a**", "**a/b", "*/../x", "\ud800"])
def test_what_is_no_pattern_says_so(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern|star|stands alone"):
        PathPattern(pattern)


@pytest.mark.req("policy.rule.linear")
@pytest.mark.timeout(20, method="signal")  # a pattern at work lets no other thread run
@pytest.mark.parametrize("pattern", ["/" + "**/a/" * 12 + "b", "/**/*a*a*a*a*a*b/**/*a*b/**/c", "/" + "*a*/" * 8 + "b"])
def test_a_nasty_pattern_takes_no_longer_for_a_path_that_is_made_for_it(pattern: str) -> None:
    assert not PathPattern(pattern).allows("/a" * 200_000, "/")
    assert not PathPattern(pattern).allows("/" + "a" * 400_000, "/")
