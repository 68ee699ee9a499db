"""The catalogue, ours and the person's."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.agents.models.catalogue import APIS, PARROT, Catalogue, parse_catalogue
from serai.agents.models.openai_chat import OpenAIChat
from serai.agents.models.providers import create_provider
from serai.errors import BadSettings
from serai.limits import Limits
from serai.model.provider import Cost


def write(folder: Path, text: str) -> dict[str, str]:
    (folder / "models.toml").write_text(text, "utf-8")
    return {"SERAI_HOME": str(folder)}


@pytest.mark.req("resident.models.catalogue")
def test_the_models_that_are_built_in_are_sound() -> None:
    catalogue = Catalogue.load_built_in()
    assert catalogue.get(PARROT) is not None
    assert {model.provider for model in catalogue} == {"anthropic", "openai", "google", "parrot"}
    for model in catalogue:
        assert model.api in APIS
        assert model.name
        assert model.max_tokens <= model.context_window
        assert (model.cost.input > 0) == (model.cost.output > 0)


def test_without_a_file_there_is_what_is_built_in(tmp_path: Path) -> None:
    assert Catalogue.load({"SERAI_HOME": str(tmp_path)}) == Catalogue.load_built_in()


@pytest.mark.req("resident.models.catalogue")
def test_a_persons_models_are_added_and_replace_ours(tmp_path: Path) -> None:
    environ = write(
        tmp_path,
        """
        [[models]]
        id = "llama"
        provider = "here"
        baseUrl = "http://127.0.0.1:8080/v1"
        contextWindow = 8000
        maxTokens = 1000
        cost = { input = 1, cacheRead = 0.5, cache_write = 2 }
        headers = { xFancy = "Yes" }

        [[models]]
        id = "PARROT"
        provider = "Parrot"
        api = "parrot"
        """,
    )
    catalogue = Catalogue.load(environ)
    llama = catalogue.get("Here/Llama")
    assert llama is not None
    assert (llama.api, llama.name, llama.base_url) == ("openai", "llama", "http://127.0.0.1:8080/v1")
    assert (llama.context_window, llama.max_tokens, llama.cost) == (8000, 1000, Cost(1.0, 0.0, 0.5, 2.0))
    assert llama.headers == {"xFancy": "Yes"}
    parrot = catalogue.get(PARROT)
    assert parrot is not None
    assert parrot.id == "PARROT"
    assert len(catalogue.models) == len(Catalogue.load_built_in().models) + 1


def test_an_unknown_api_is_kept_for_a_guest_and_else_meant_as_a_compatible_one() -> None:
    (model,) = parse_catalogue(
        '[[models]]\nid = "x"\napi = "grpc"\nprovider = "acme"\nbase_url = "http://127.0.0.1:9/v1"', who="x"
    ).models
    assert (model.api, model.key) == ("grpc", "acme/x")
    assert type(create_provider(model, environ={}, limits=Limits())) is OpenAIChat
    (model,) = parse_catalogue('[[models]]\nid = "x"\napi = ""', who="x").models
    assert (model.api, model.key) == ("openai", "openai/x")


@pytest.mark.req("resident.models.catalogue")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[models]]\nid = "x"\ncolour = "red"', "colour"),
        ('[[models]]\nid = "x"\ncost = { inputs = 1 }', "inputs"),
        ('[[model]]\nid = "x"', "model"),
        ('[[models]]\nname = "x"', "id"),
        ('[[models]]\nid = ""', "id"),
        ('[[models]]\nid = "x"\nmax_tokens = "many"', "max_tokens"),
        ('[[models]]\nid = "x"\nmax_tokens = -1', "0 or more"),
        ('[[models]]\nid = "x"\ncost = { input = -1 }', "0 or more"),
        ('[[models]]\nid = "x"\nbase_url = "localhost:80"', "http://"),
        ('[[models]]\nid = "x"\nbase_url = "ftp://me:hunter2-hush@host"', "http://"),
        ('[[models]]\nid = "x"\nbase_url = "http://me:hunter2-hush/x@host"', "http://"),
        ('[[models]]\nid = "x"\nheaders = { Token = "hunter2-hush\\u0007" }', "the header Token"),
        ('[[models]]\nid = "x"\nheaders = { "Token: hunter2-hush" = "" }', "headers"),
        ("[[models", "models"),
        ("models = 3", "models"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(BadSettings, match=why) as caught:
        Catalogue.load(write(tmp_path, text))
    assert caught.value.who == str(tmp_path / "models.toml")
    assert "base_url" in caught.value.hint
    assert "hush" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "models.toml").mkdir()
    with pytest.raises(BadSettings, match="directory"):
        Catalogue.load({"SERAI_HOME": str(tmp_path)})


def test_bytes_that_are_no_text_and_a_file_without_end_are_told(tmp_path: Path) -> None:
    for content, why in ((b"\xff\xfe", "utf-8"), (b"#" * (1024 * 1024 + 1), "longer")):
        (tmp_path / "models.toml").write_bytes(content)
        with pytest.raises(BadSettings, match=why):
            Catalogue.load({"SERAI_HOME": str(tmp_path)})


@given(st.text())
def test_any_text_is_a_catalogue_or_a_clear_error(text: str) -> None:
    with suppress(BadSettings):
        assert all(model.id for model in parse_catalogue(text, who="x").models)


def test_an_override_changes_what_it_says_of_a_model_wherever_that_is_described(tmp_path: Path) -> None:
    text = '[[override]]\nkey = "Parrot/PARROT"\ncontextWindow = 5\n\n[[override]]\nkey = "parrot/parrot"\nname = "Polly"\n'
    (tmp_path / "models.toml").write_text(text + '\n[[override]]\nkey = "nobody/there"\nname = "Nobody"\n')
    found, shipped = Catalogue.load({"SERAI_HOME": str(tmp_path)}), Catalogue.load_built_in()
    parrot, before = found.get(PARROT), shipped.get(PARROT)
    assert parrot is not None
    assert before is not None
    assert (parrot.name, parrot.context_window, parrot.max_tokens) == ("Polly", 5, before.max_tokens)
    assert len(found.models) == len(shipped.models)


@pytest.mark.parametrize("wrong", ['name = "x"', 'key = "a/b"\nheaders = {}', 'key = "a/b"\nmax_tokens = -1'])
def test_an_override_that_says_something_else_is_refused(wrong: str) -> None:
    with pytest.raises(BadSettings):
        parse_catalogue(f"[[override]]\n{wrong}\n", who="x")
