"""The matcher against real shells: what they really run is what counts.

The shells see only stub programs, which write down how they were called. In the first test only texts that the matcher allows
are run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from serai.policy.commands.reader import CommandPattern, read_command
from serai.policy.commands.shell_text import CommandReading
from tests.support.policy.command_readers import ALL
from tests.support.policy.stub_shells import SHELLS, Place, make_place
from tests.support.profiles import examples

STATUS = CommandPattern("git status")
RM = CommandPattern("rm *")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("shells"))


@pytest.fixture(scope="module")
def pit(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place for texts that may leave files behind."""
    return make_place(tmp_path_factory.mktemp("pit"))


noise = st.sampled_from(
    [
        *" ;&|<>()$`\\'\"\n\t\r\x0b\x0c\0#!~*?[]{}=^%@+-,.:/é",
        *(
            "\u00a0",
            "\u200b",
            "\u2028",
            "\u037e",
            "\uff1b",
            "$IFS",
            "${IFS}",
            "$(a)",
            "`a`",
            "&&",
            "||",
            "<<E",
            "''",
            '""',
            "A=b ",
            "\\\n",
        ),
        *("a", "rm", "#a"),
    ]
)


@st.composite
def around_git_status(draw: st.DrawFn) -> str:
    """`git status` with a few insertions, deletions and swaps."""
    chars = list(draw(st.sampled_from(["git status", "git 'status'", '"git" status', " git  status "])))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(chars)))
        match draw(st.integers(0, 3)):
            case 0:
                del chars[at : at + 1]
            case _:
                chars.insert(at, draw(noise))
    return "".join(chars)


def _is_allowed(text: str) -> bool:
    simple = read_command(text).simple
    return simple is not None and STATUS.allows(simple)


@pytest.mark.req("policy.command.fuzz-allow")
@settings(
    max_examples=examples(1500), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(text=around_git_status())
@example(text="git status")
@example(text="'git' \"status\"")
@example(text="git status ")
def test_what_the_rule_for_git_status_allows_runs_git_status_and_nothing_else(place: Place, text: str) -> None:
    if not _is_allowed(text):
        return
    for shell in SHELLS:
        assert place.run(shell, text) == [["git", "status"]]
    assert os.listdir(place.folder) == []


names = st.sampled_from(
    [
        *(
            "rm",
            "\\rm",
            "'rm'",
            '"rm"',
            "r''m",
            '"r"m',
            "r\\m",
            "$'\\x72m'",
            "$'rm'",
            "r\\\nm",
            "command rm",
            "${x:-rm}",
            "r${x}m",
            "r$'m'",
        ),
        *(
            "$(echo rm)",
            "{rm,}",
            "`echo rm`",
            '"$(echo rm)"',
            "${x}rm",
            "env rm",
            "exec rm",
            "builtin command rm",
            "nohup rm",
            "A=b rm",
        ),
        *(
            "> /dev/null rm",
            "! rm",
            "=rm",
            "$y",
            "$@",
            "${z[0]}",
            '"${z[@]}"',
            "ls; rm",
            "{fd}>/dev/null rm",
            "2>&1 rm",
            "a=(1) rm",
        ),
    ]
)
words = st.sampled_from(
    [
        "-rf victim",
        "-rf 'victim'",
        "$'-rf' victim",
        "-rf$IFS''victim",
        "-rf ${x}victim",
        "{-rf,victim}",
        "-rf \\\n victim",
        "<<< x -rf victim",
    ]
)


def quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


Around = Callable[[str], str]

# Each takes a text and makes one that runs it, or may run it, or only looks like it.
AROUND: list[Around] = [
    lambda t: f"ls; {t}",
    lambda t: f"ls\n{t}",
    lambda t: f"ls & {t}",
    lambda t: f"ls && {t} | cat",
    lambda t: f"ls |& {t}",
    lambda t: f"false || {t} # it",
    lambda t: f"{t} &> /dev/null",
    lambda t: f"{t} >| /dev/null 2>&1 &\nwait",
    lambda t: f"echo $({t})",
    lambda t: f'echo "a $({t}) b"',
    lambda t: f"echo `{t}`",
    lambda t: f"echo $(( 1 + $({t}) ))",
    lambda t: f"x=$({t})",
    lambda t: f"echo ${{q:-$({t})}}",
    lambda t: f"echo \"${{q:-'$({t})'}}\"",
    lambda t: f"echo ${{q//a/$({t})}}",
    lambda t: f"cat <({t})",
    lambda t: f"cat < <({t}; wait)",
    lambda t: f"({t})",
    lambda t: f"{{ {t}\n}}",
    lambda t: f"if ls; then {t}\nfi",
    lambda t: f"for i in 1; do {t}\ndone",
    lambda t: f"while {t}\nfalse; do ls; done",
    lambda t: f"case x in x) {t}\nesac",
    lambda t: f"f() {{ {t}\n}}; f",
    lambda t: f"[[ -n $({t}) ]]",
    lambda t: f"coproc {t}\nwait",
    lambda t: f"time {t}",
    lambda t: f"cat <<E\n$({t})\nE",
    lambda t: f"cat <<E\n`{t}`\nE",
    lambda t: f"cat <<-'E' | ls\n\tx\n\tE\n{t}",
    lambda t: f"bash <<'E'\n{t}\nE",
    lambda t: f"bash <<< {quote(t)}",
    lambda t: f"echo {quote(t)} | sh",
    lambda t: f"sh -c {quote(t)}",
    lambda t: f"bash --norc -ec {quote(t)}",
    lambda t: f"bash -c 'eval \"$1\"' _ {quote(t)}",
    lambda t: f"eval {quote(t)}",
    lambda t: f"eval ls ';' {t}",
    lambda t: f"env A=b sh -c {quote(t)}",
    lambda t: f"env -S 'sh -c' {quote(t)}",
    lambda t: f"timeout 5 bash -c {quote(t)}",
    lambda t: f"nice -n 1 setsid -w sh -c {quote(t)}",
    lambda t: f"echo x | xargs -I% sh -c {quote(t)}",
    lambda t: f"echo x | xargs sh -c {quote(t)}",
    lambda t: f"find . -maxdepth 0 -exec sh -c {quote(t)} \\;",
    lambda t: f"trap {quote(t)} EXIT",
    lambda t: f"source /dev/stdin <<< {quote(t)}",
    lambda t: f"x={quote(t)}; $x",
    lambda t: f'x={quote(t)}; eval "$x"',
    lambda t: f"a=({quote(t)}); ${{a[0]}}",
    lambda t: f'set -- {quote(t)}; sh -c "$1"',
    lambda t: f"v='q[$({t})]'; echo $((v))",
    lambda t: f"v='q[$({t})]'; [[ v -eq 0 ]]",
    lambda t: f"read 'q[$({t})]' <<< 1",
    lambda t: f"PS4='$({t})'; set -x; ls",
    lambda t: f"v='$({t})'; echo \"${{v@P}}\"",
    lambda t: f"shopt -s expand_aliases; alias zz={quote(t)}\nzz",
    lambda t: f"printf -v 'q[$({t})]' x",
    lambda t: f"ls 'a' \\\n; {t}",
    lambda t: f'echo "a\\""; {t}',
    lambda t: f"echo '\\'; {t}; echo ''",
    lambda t: f"echo a#b; {t}",
    lambda t: f"echo {quote(t)}",
    lambda t: f"# {t}",
    # What is more than data: variables, values, options. Each ends itself: what runs within must not begin it anew.
    lambda t: f"BASH_ENV={quote(f'$(unset BASH_ENV; {t})')} bash -c true",
    lambda t: f"ENV={quote(f'$(unset ENV; {t})')} dash -i -c true",
    lambda t: f"env {quote(f'BASH_FUNC_zz%%=() {{ {t}{chr(10)}}}')} bash -c zz",
    lambda t: f"printf -v PS4 %s {quote(f'$(set +x; {t})')}; set -x; true; set +x",
    lambda t: f"IFS= read -r PS4 <<< {quote(f'$(set +x; {t})')}; set -x; true; set +x",
    lambda t: f"for PS4 in {quote(f'$(set +x; {t})')}; do set -x; true; set +x; done",
    lambda t: f"mapfile PS4 <<< {quote(f'$(set +x; {t})')}; set -x; true; set +x",
    lambda t: f"unset PS4; : ${{PS4:={quote(f'$(set +x; {t})')}}}; set -x; true; set +x",
    lambda t: f"ls >& {quote(f'$({t})')}",
    lambda t: f"declare -a {quote(f'q=($({t}))')}",
    lambda t: f"readonly -a {quote(f'w=($({t}))')}",
    lambda t: f"declare -a q; declare {quote(f'q=($({t}))')}",
    lambda t: f'y={quote(f"($({t}))")}; declare -a q; declare "q=$y"',
    lambda t: f"set -k; sh A=1 -c {quote(t)}",
    lambda t: f"bash -kc {quote(f'sh A=1 -c {quote(t)}')}",
    lambda t: f"bash +O interactive_comments -ic {quote(f'echo # ; {t}')}",
    lambda t: f"bash --rcfile /dev/stdin -ic true <<< {quote(t)}",
    lambda t: f"bash --rcfile <({t}) -ic true",
    lambda t: f"/proc/self/exe -c {quote(t)}",
    lambda t: f"find . -maxdepth 0 ! -name -exec -exec sh -c {quote(t)} \\;",
    lambda t: f"find . -maxdepth 0 ! -path -ok -exec sh -c {quote(t)} {{}} +",
    lambda t: f"script -qc ls /dev/null -c {quote(t)}",
    lambda t: f"script -qc {quote(t)} /dev/null",
    lambda t: f"flock . -c {quote(t)}",
    lambda t: f"split --filter={quote(t)} - <<< a",
    lambda t: f"tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec={quote(t)} . .",
    lambda t: f"echo sh | xargs -I A=b env A=b -c {quote(t)}",
    lambda t: f'x=-c; script -q /dev/null "$x" {quote(t)}',
    lambda t: f"set -o history -o histexpand\nhistory -s {quote(t)}\n!!",
]


@st.composite
def hiding_rm(draw: st.DrawFn) -> str:
    text = f"{draw(names)} {draw(words)}"
    for around in draw(st.lists(st.sampled_from(AROUND), max_size=3)):
        text = around(text)
    return text


def _read_with_all(text: str) -> dict[str, str]:
    readers: dict[str, Callable[[str], CommandReading]] = dict(ALL)
    return {name: RM.finds(reader(text)) for name, reader in readers.items()}


def _check(place: Place, shell: str, text: str) -> None:
    answers = _read_with_all(text)
    if "no" in answers.values():
        assert ["rm"] not in [call[:1] for call in place.run(shell, text)], (text, answers)


@pytest.mark.req("policy.command.fuzz-deny")
@pytest.mark.parametrize("around", AROUND)
def test_each_hiding_place_of_rm_is_found(place: Place, around: Around) -> None:
    text = around("rm -rf victim")
    for shell in SHELLS:
        _check(place, shell, text)


@pytest.mark.req("policy.command.fuzz-deny")
@settings(
    max_examples=examples(600), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(text=hiding_rm())
def test_when_rm_really_ran_no_reader_said_no(place: Place, text: str) -> None:
    for shell in SHELLS:
        _check(place, shell, text)


signs = st.sampled_from(
    [
        *" ;&|<>()$`\\'\"\n\t#!~*?[]{}=^%@+-,.:/",
        *(
            "&&",
            "||",
            "|&",
            "<<E\n",
            "<<'E'\n",
            "\nE\n",
            "''",
            '""',
            "A=b ",
            "a=(1) ",
            "\\\n",
            "$(",
            "${x",
            "<(",
            "\\'",
            "$'",
            "((",
            "))",
            "$((",
        ),
        *(
            "[[ ",
            " ]]",
            "if ",
            "then ",
            "fi",
            "do ",
            "done",
            "case a in ",
            "a) ",
            ";;",
            "esac",
            "for i in ",
            "{ ",
            "; }",
            "&>x ",
            "=~ ",
            "time ",
        ),
    ]
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = f"{draw(names)} -rf victim"
    for around in draw(st.lists(st.sampled_from(AROUND), max_size=2)):
        text = around(text)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(signs | st.just("")) + text[at + draw(st.integers(0, 1)) :]
    return text


@pytest.mark.req("policy.command.fuzz-deny")
@settings(
    max_examples=examples(600), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(text=mutated())
@example(text="time A=b rm -rf victim")
@example(text="a=(1)# rm -rf victim")
@example(text=" {rm,} -rf victim\n}")
@example(text="source //dev/stdin <<< 'rm -rf victim'")
def test_when_rm_really_ran_in_a_broken_text_no_reader_said_no(pit: Place, text: str) -> None:
    for shell in SHELLS:
        _check(pit, shell, text)


def test_the_shells_under_test_really_run_what_hides_rm(place: Place) -> None:
    """The oracle can see: most hiding places really run the stub."""
    bash = shutil.which("bash")
    assert bash is not None
    ran = [["rm", "-rf", "victim"] in place.run(bash, around("rm -rf victim")) for around in AROUND]
    assert sum(ran) > 0.8 * len(AROUND)
