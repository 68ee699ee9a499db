"""Which model is meant."""

from __future__ import annotations

import pytest

from serai.agents.models.catalogue import Catalogue, choose, list_key_variables, resolve
from serai.errors import NoModel
from serai.model.provider import Model

CATALOGUE = Catalogue(
    (
        Model("big-model-2", "The Big One", provider="acme"),
        Model("big-model", "Big", provider="beta"),
        Model("big-model", "Big", provider="acme"),
        Model("my-big-model-mini", "Mini", provider="acme"),
        Model("small", "Tiny Thing", provider="acme"),
        Model("acme/big-model", "Odd", provider="odd"),
    )
)


@pytest.mark.req("piglet.rule.model-resolution")
@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("acme/big-model", "acme/big-model"),  # the key before the id of another
        ("BETA/Big-Model", "beta/big-model"),
        ("big-model-2", "acme/big-model-2"),  # the exact id
        ("Big-Model", "acme/big-model"),  # two have it: the first key
        ("big", "acme/big-model"),  # the shortest with that prefix
        ("big-model-", "acme/big-model-2"),
        ("model-mini", "acme/my-big-model-mini"),  # inside an id
        ("tiny", "acme/small"),  # inside a name
        ("thing", "acme/small"),
        ("my", "acme/my-big-model-mini"),
        (" big-model-2 ", "acme/big-model-2"),
    ],
)
def test_a_query_finds_its_model_by_the_rules_in_order(query: str, key: str) -> None:
    assert resolve(query, CATALOGUE, {}).key == key
    assert resolve(query, Catalogue(CATALOGUE.models[::-1]), {}).key == key  # whatever the order of the catalogue


@pytest.mark.req("piglet.rule.model-resolution")
def test_the_words_default_and_small_mean_what_is_configured() -> None:
    settings = {"default_model": "beta/big-model", "small_model": "acme/small"}
    for word in ("", "default", "Default", "  "):
        assert resolve(word, CATALOGUE, {}, settings).key == "beta/big-model"
        assert resolve(word, CATALOGUE, {"PIGLET_DEFAULT_MODEL": "mini"}, settings).key == "acme/my-big-model-mini"
        both = {"PIGLET_DEFAULT_MODEL": "mini", "SERAI_DEFAULT_MODEL": "big-model-2"}
        assert resolve(word, CATALOGUE, both, settings).key == "acme/big-model-2"
    assert resolve("small", CATALOGUE, {}, settings).key == "acme/small"
    assert resolve("small", CATALOGUE, {"PIGLET_SMALL_MODEL": "mini"}, settings).key == "acme/my-big-model-mini"
    assert resolve("small", CATALOGUE, {}, {"default_model": "big-model-2"}).key == "acme/big-model-2"
    assert resolve("small", CATALOGUE, {"SERAI_DEFAULT_MODEL": "big-model-2"}).key == "acme/big-model-2"


@pytest.mark.req("piglet.rule.model-resolution")
def test_nothing_configured_and_unknown_models_are_clear_errors() -> None:
    for word in ("", "default", "small"):
        with pytest.raises(NoModel, match="^resolve provider: no model configured$"):
            resolve(word, CATALOGUE, {}, {"default_model": "  "})
    with pytest.raises(NoModel, match="^resolve provider: unknown model: Bigg-Modle$") as caught:
        resolve("Bigg-Modle", CATALOGUE, {})
    assert "acme/big-model" in caught.value.hint
    with pytest.raises(NoModel) as caught:
        resolve("\0" * 10_000, CATALOGUE, {})
    assert "acme/small" in caught.value.hint


@pytest.mark.req("resident.models.choice")
def test_without_a_choice_the_keys_decide_and_without_keys_parrot_answers_and_says_so() -> None:
    catalogue = Catalogue.load_built_in()
    keys = {"GOOGLE_API_KEY": "g", "OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a"}
    assert choose("", catalogue, keys).model.provider == "anthropic"
    assert "ANTHROPIC_API_KEY" in choose("", catalogue, keys).why
    assert choose("", catalogue, keys | {"ANTHROPIC_API_KEY": " "}).model.provider == "openai"
    assert choose("", catalogue, {"GOOGLE_API_KEY": "g"}).model.provider == "google"
    assert choose("small", catalogue, {"GEMINI_API_KEY": "g"}).model.provider == "google"

    nothing = choose("", catalogue, {})
    assert nothing.model.key == "parrot/parrot"
    assert "offline parrot answers" in nothing.why
    assert "ANTHROPIC_API_KEY" in nothing.why


@pytest.mark.req("resident.models.choice")
def test_what_was_asked_for_or_configured_needs_no_reason() -> None:
    catalogue = Catalogue.load_built_in()
    asked = choose("parrot", catalogue, {"OPENAI_API_KEY": "o"})
    assert (asked.model.key, asked.why) == ("parrot/parrot", "")
    assert choose("", catalogue, {"SERAI_DEFAULT_MODEL": "parrot", "OPENAI_API_KEY": "o"}) == asked
    with pytest.raises(NoModel, match="unknown model: nonsense"):
        choose("nonsense", catalogue, {})
    with pytest.raises(NoModel, match="unknown model: nonsense"):
        choose("", catalogue, {"SERAI_DEFAULT_MODEL": "nonsense"})


def test_the_variable_of_any_provider_is_known() -> None:
    assert list_key_variables("google") == ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    assert list_key_variables("my-cloud.ch") == ("MY_CLOUD_CH_API_KEY",)
