"""What is on the screen: the sum of all actions."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.model.actions import (
    Action,
    Anchor,
    AttachImage,
    CloseOverlay,
    ClosePanel,
    DetachImage,
    Display,
    Insert,
    NoAction,
    Notice,
    OpenPanel,
    Overlay,
    Panel,
    Placement,
    Quit,
    ScreenState,
    SetStatus,
    SetTitle,
    SetWidget,
    ShowOverlay,
    SubmitPrompt,
    Width,
    parse_anchor,
    parse_width,
)
from serai.model.tools import ImageBlock

UNHURRIED = settings(deadline=None)  # a busy machine is no defect
KEYS = st.sampled_from("abc")
TEXTS = st.sampled_from(("", "x", "y"))
PLACEMENTS = st.sampled_from(get_args(Placement))
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(SetStatus, KEYS, TEXTS),
    st.builds(SetWidget, KEYS, PLACEMENTS, TEXTS),
    st.builds(ShowOverlay, st.builds(Overlay, KEYS, TEXTS, TEXTS)),
    st.builds(CloseOverlay, KEYS),
    st.builds(SetTitle, TEXTS),
    st.builds(AttachImage, st.builds(ImageBlock, st.binary(max_size=1))),
    st.just(DetachImage()),
    st.builds(Insert, TEXTS),
)
PICTURE = ImageBlock(b"1", "image/png")


def apply_actions(*actions: Action) -> ScreenState:
    board = ScreenState()
    for action in actions:
        board = board.apply(action)
    return board


# -- in order, and empty removes --------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.rule.ui-actions")
@UNHURRIED
@given(st.lists(ACTIONS, max_size=30))
def test_for_every_key_the_last_action_counts_and_an_empty_one_removes(actions: list[Action]) -> None:
    board = apply_actions(*actions)
    statuses = {action.key: action.text for action in actions if isinstance(action, SetStatus)}
    assert board.statuses == {key: text for key, text in statuses.items() if text}
    widgets = {action.key: action for action in actions if isinstance(action, SetWidget)}
    for place in get_args(Placement):
        there = {key: one.content for key, one in widgets.items() if one.placement == place and one.content}
        assert board.widgets[place] == there


@UNHURRIED
@given(st.lists(ACTIONS, max_size=30))
def test_of_overlays_there_is_one_for_each_key_and_the_newest_is_on_top(actions: list[Action]) -> None:
    expected: list[Overlay] = []
    for action in actions:
        match action:
            case ShowOverlay(overlay):
                expected = [one for one in expected if one.key != overlay.key] + [overlay]
            case CloseOverlay(key):
                expected = [one for one in expected if one.key != key]
    assert list(apply_actions(*actions).overlays) == expected


@UNHURRIED
@given(st.lists(ACTIONS, max_size=10), ACTIONS)
def test_an_action_changes_no_board_but_makes_another(actions: list[Action], last: Action) -> None:
    board, same = apply_actions(*actions), apply_actions(*actions)
    board.apply(last)
    assert board == same


@pytest.mark.req("piglet.rule.ui-actions")
def test_the_same_actions_in_another_order_show_something_else() -> None:
    show, clear = SetWidget("w", "above-input", "x"), SetWidget("w", "above-input", "")
    assert apply_actions(show, clear).widgets["above-input"] == {}
    assert apply_actions(clear, show).widgets["above-input"] == {"w": "x"}
    assert apply_actions(SetStatus("s", "x"), SetStatus("s", "")).statuses == {}


def test_what_changes_keeps_its_place_and_what_is_new_comes_last() -> None:
    board = apply_actions(SetStatus("a", "1"), SetStatus("b", "2"), SetStatus("a", "3"), SetStatus("c", "4"))
    assert list(board.statuses.items()) == [("a", "3"), ("b", "2"), ("c", "4")]


def test_a_widget_is_in_one_place() -> None:
    board = apply_actions(SetWidget("w", "above-input", "x"), SetWidget("w", "below-status", "y"))
    assert board.widgets == {"above-input": {}, "below-status": {"w": "y"}}


def test_a_second_image_takes_the_first_one_off() -> None:
    assert apply_actions(AttachImage(PICTURE)).image == PICTURE
    assert apply_actions(AttachImage(PICTURE), AttachImage(PICTURE)).image is None
    assert apply_actions(AttachImage(PICTURE), DetachImage()).image is None


def test_a_prompt_takes_the_image_and_the_prepared_text_with_it() -> None:
    board = apply_actions(AttachImage(PICTURE), Insert("/fore"), Insert("cast "), SetStatus("a", "1"))
    assert (board.image, board.input) == (PICTURE, "/forecast ")
    assert board.submit() == apply_actions(SetStatus("a", "1"))


def test_a_panel_is_closed_by_its_owner_alone() -> None:
    panel = Panel("p", "Radar", owner="zot:a")
    assert apply_actions(OpenPanel(panel)).panel == panel
    assert apply_actions(OpenPanel(panel), ClosePanel(Panel("p", owner="zot:b"))).panel == panel
    assert apply_actions(OpenPanel(panel), ClosePanel(Panel("p", owner="zot:a"))).panel is None


def test_an_empty_title_is_none() -> None:
    assert apply_actions(SetTitle("Trip"), SetTitle("")).title == "Trip"


@pytest.mark.parametrize("action", [SubmitPrompt("x"), Display("x"), Notice("x"), Quit(), NoAction()])
def test_what_passes_by_leaves_nothing_behind(action: Action) -> None:
    assert apply_actions(action) == ScreenState()


# -- overlays ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.rule.ui-overlay")
@pytest.mark.parametrize(
    ("text", "anchor"),
    [
        ("", Anchor("centre", "centre")),
        ("left", Anchor("left", "centre")),
        ("Right", Anchor("right", "centre")),
        ("TOP", Anchor("centre", "top")),
        ("top-right", Anchor("right", "top")),
        ("Left_Bottom", Anchor("left", "bottom")),
        (" bottom-left ", Anchor("left", "bottom")),
        ("left-right", Anchor("right", "centre")),
        ("center", Anchor()),
        ("top right", Anchor()),
        ("upper-left", Anchor("left", "centre")),
    ],
)
def test_an_anchor_is_made_of_the_words_for_its_sides(text: str, anchor: Anchor) -> None:
    assert parse_anchor(text) == anchor


@pytest.mark.req("piglet.rule.ui-overlay")
@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("", Width(60, "percent")),
        ("50%", Width(50, "percent")),
        ("1%", Width(1, "percent")),
        ("100%", Width(100, "percent")),
        ("0%", Width()),
        ("101%", Width()),
        ("40", Width(40, "characters")),
        (" 120 ", Width(120, "characters")),
        ("0", Width()),
        ("-5", Width()),
        ("5.5", Width()),
        ("wide", Width()),
        ("٤", Width()),
        ("9" * 5000, Width()),
    ],
)
def test_a_width_is_a_share_of_the_screen_or_a_number_of_characters(text: str, width: Width) -> None:
    assert parse_width(text) == width
