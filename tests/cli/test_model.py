"""`serai model`: the catalogue, what its models need, and the one that would be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.agents.models.catalogue import KEYS, Catalogue
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import parse_objects

SECRET = "hunter2-hunter2"
MINE = f"""
[[models]]
id = "tiny"
name = "Tiny"
provider = "here"
base_url = "http://127.0.0.1:8080/v1"

[[models]]
id = "big"
provider = "acme"
base_url = "https://me:{SECRET}@acme.example/v1"
headers = {{ X-Team = "{SECRET}" }}

[[models]]
id = "far"
provider = "far-away"
base_url = "https://far.example/v1"
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InProcessShell:
    for name in (
        "SERAI_DEFAULT_MODEL",
        "PIGLET_DEFAULT_MODEL",
        "SERAI_SMALL_MODEL",
        *(one for names in KEYS.values() for one in names),
    ):
        monkeypatch.delenv(name, raising=False)
    shell = InProcessShell(tmp_path)
    shell.home.mkdir()
    return shell


def find_starred(text: str) -> list[str]:
    return [line.split()[1] for line in text.splitlines() if line.startswith("*  ")]


@pytest.mark.req("app.models.list")
def test_the_list_has_every_model_and_a_star_at_the_one_that_would_be_used(shell: InProcessShell) -> None:
    ran = shell("model", "list")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert all(model.key in ran.stdout for model in Catalogue.load_built_in())
    assert find_starred(ran.stdout) == ["parrot/parrot"]
    assert "* parrot/parrot would be used: no key and no model were found" in ran.stdout


@pytest.mark.req("app.models.list")
def test_a_key_that_is_there_is_told_by_its_name_and_decides(shell: InProcessShell) -> None:
    ran = shell("model", "list", OPENAI_API_KEY=SECRET)
    assert find_starred(ran.stdout) == ["openai/gpt-5.4"]
    assert "because OPENAI_API_KEY is set" in ran.stdout
    assert "set ANTHROPIC_API_KEY" in ran.stdout
    assert SECRET not in ran.stdout + ran.stderr


@pytest.mark.parametrize("variable", ["SERAI_DEFAULT_MODEL", "PIGLET_DEFAULT_MODEL"])
def test_a_variable_that_chooses_the_model_is_the_reason(shell: InProcessShell, variable: str) -> None:
    (shell.home / "config.toml").write_text('default_model = "haiku-4"')
    said = f"* anthropic/claude-haiku-4-5 would be used: default_model of {shell.home}/config.toml says so"
    assert said in shell("model", "list").stdout
    ran = shell("model", "list", cwd=None, **{variable: "opus"})
    assert f"* anthropic/claude-opus-5-5 would be used: {variable} is set" in ran.stdout


def test_a_choice_that_nobody_knows_is_told_without_its_value(shell: InProcessShell) -> None:
    ran = shell("model", "list", SERAI_DEFAULT_MODEL=SECRET)
    assert find_starred(ran.stdout) == []
    assert "SERAI_DEFAULT_MODEL names a model that nobody knows" in ran.stdout
    assert "models.toml can describe others" in ran.stderr
    assert SECRET not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("haiku", ["anthropic/claude-haiku-5-5", "anthropic/claude-haiku-4-5"]),
        ("GOOGLE/", ["google/gemini-3.6-flash", "google/gemini-2.5-pro"]),
        ("openai/gpt-5.5", ["openai/gpt-5.5"]),
        ("default", ["anthropic/claude-opus-5-5"]),
        ("small", ["anthropic/claude-haiku-4-5"]),
    ],
)
@pytest.mark.req("app.models.list")
def test_a_query_narrows_the_list_to_what_it_may_mean(shell: InProcessShell, query: str, keys: list[str]) -> None:
    settings = {"SERAI_DEFAULT_MODEL": "opus", "SERAI_SMALL_MODEL": "haiku-4"}
    assert [one["key"] for one in parse_objects(shell("model", "list", query, "--json", cwd=None, **settings))] == keys


def test_a_query_is_told_with_what_a_run_would_take_for_it(shell: InProcessShell) -> None:
    assert "--model haiku means anthropic/claude-haiku-4-5" in shell("model", "list", "haiku").stdout
    assert "--model" not in shell("model", "list", "google/").stdout  # a run knows no such model


@pytest.mark.parametrize("command", ["list", "show"])
@pytest.mark.req("app.models.list")
def test_an_unknown_model_is_told_with_the_names_that_are_near(shell: InProcessShell, command: str) -> None:
    ran = shell("model", command, "claud-sonet")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "unknown model: claud-sonet" in ran.stderr
    assert "did you mean anthropic/claude-sonnet-5-5" in ran.stderr


def test_each_model_says_what_it_needs(shell: InProcessShell) -> None:
    (shell.home / "models.toml").write_text(MINE)
    needs = {one["key"]: (one["ready"], one["its_key"]) for one in parse_objects(shell("model", "list", "--json"))}
    assert needs["parrot/parrot"] == needs["here/tiny"] == (True, "none needed")
    assert needs["acme/big"] == (True, "in models.toml")
    assert needs["far-away/far"] == (False, "set FAR_AWAY_API_KEY")
    assert needs["google/gemini-2.5-pro"] == (False, "set GEMINI_API_KEY or GOOGLE_API_KEY")


def test_show_tells_all_but_what_is_secret(shell: InProcessShell) -> None:
    (shell.home / "models.toml").write_text(MINE)
    plain, [form] = shell("model", "show", "big"), parse_objects(shell("model", "show", "big", "--json"))
    assert plain.stdout.splitlines() == [
        "acme/big: big",
        "  API openai, at https://acme.example/v1",
        "  with the headers X-Team",
        "  its key: in models.toml",
    ]
    assert (form["base_url"], form["headers"]) == ("https://acme.example/v1", ["X-Team"])
    assert SECRET not in f"{plain} {form}"


def test_show_tells_of_context_and_cost(shell: InProcessShell) -> None:
    ran = shell("model", "show", "sonnet", ANTHROPIC_API_KEY=SECRET)
    assert ran.stdout.splitlines() == [
        "anthropic/claude-sonnet-5-5: Claude Sonnet 5.5",
        "  API anthropic",
        "  context: 1,000,000 tokens, 128,000 of an answer",
        "  cost: $2 in, $10 out; from the cache $0.2, into it $2.5, for a million tokens",
        "  its key: ANTHROPIC_API_KEY is set",
        "  it would be used: no model was chosen; anthropic/claude-sonnet-5-5 is, because ANTHROPIC_API_KEY is set",
    ]


def test_a_broken_models_toml_is_an_error_that_names_the_file(shell: InProcessShell) -> None:
    (shell.home / "models.toml").write_text("[[models]]\nidd = 'x'")
    ran = shell("model", "list")
    assert ran.returncode == 1
    assert "models.toml" in ran.stderr
    assert "idd" in ran.stderr
