"""Ways to run a command that a reader had not seen, each of them as found."""

from __future__ import annotations

import shutil

import pytest

from serai.policy.commands.reader import CommandPattern, read_command
from tests.support.policy.command_evasions import BASH, DASH, EVERYDAY, NOT_RUN, OPAQUE
from tests.support.policy.command_readers import ALL
from tests.support.policy.stub_shells import Place, make_place

RM = CommandPattern("rm *")
RUN = [("bash", text) for text in BASH] + [("dash", text) for text in DASH]
# A text is run only where the programs that it needs are.
NEEDS = ("script", "flock", "dash", "tar", "split", "sort", "find", "xargs", "env")


@pytest.fixture(scope="module")
def pit(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("evasions"))


@pytest.mark.req("policy.command.maybe")
@pytest.mark.parametrize("text", [*BASH, *DASH, *NOT_RUN])
@pytest.mark.parametrize("reader", ALL)
def test_what_may_run_rm_is_never_no(reader: str, text: str) -> None:
    assert RM.finds(ALL[reader](text)) != "no"


@pytest.mark.req("policy.command.fuzz-deny")
@pytest.mark.parametrize(("shell", "text"), RUN)
def test_it_really_runs_rm(pit: Place, shell: str, text: str) -> None:
    """Else the row above proves nothing."""
    missing = [name for name in NEEDS if name in text and not shutil.which(name)]
    found = shutil.which(shell)
    if missing or found is None:
        pytest.skip(f"{shell} or {missing} is not on this machine")
    assert "rm" in [call[0] for call in pit.run(found, text.replace("@BIN@", pit.environ["PATH"]))]


@pytest.mark.req("policy.command.wrappers")
@pytest.mark.parametrize("text", EVERYDAY)
def test_what_people_write_every_day_is_not_hidden(text: str) -> None:
    reading = read_command(text)
    assert not reading.unread
    assert not reading.hidden
    assert RM.finds(reading) == "no"


@pytest.mark.req("policy.command.wrappers")
@pytest.mark.parametrize("text", OPAQUE)
def test_a_language_of_its_own_is_opaque(text: str) -> None:
    assert RM.finds(read_command(text)) == "no"


@pytest.mark.req("policy.command.argv")
@pytest.mark.parametrize("blank", list("\x1c\x1d\x1e\x1f\x85\u2003\u200b\u3164"))
def test_env_splits_only_where_env_does(blank: str) -> None:
    assert RM.finds(read_command(["env", "-S", f"A=1{blank}echo rm x"])) == "maybe"


@pytest.mark.req("policy.command.argv")
@pytest.mark.parametrize("blank", list(" \t\n\v\f\r"))
def test_env_splits_at_every_blank(blank: str) -> None:
    assert RM.finds(read_command(["env", "-S", f"A=1{blank}rm{blank}x"])) == "yes"
