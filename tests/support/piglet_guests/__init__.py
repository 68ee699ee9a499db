"""Stand-in piglet extensions, for tests: real programs that behave on the wire as those of piglet's own SDKs do.

    folder = piglet_guests.write(
        tmp_path,
        "weather",
        tools={
            "weather": "$city: 16 degrees, fog",                    # a text: what the tool answers; $name is an argument
            "host": [relay()],                                      # a list: steps; this one asks the host what its arguments name
            "slow": offer([note(begun), wait(go)], deferred=True),  # `offer` adds fields to the registration
            "odd": {"content": 7},                                  # all else: the result, as it is
            "fatal": [crash()],
        },
        commands={"pick": [ask("host/askUser", {"prompt": "Send?", "choices": ["yes", "no"]})]},
        sections={"Units": "Use metric."},
        interceptors={"guard": interceptor(before="not today", priority=2000)},
        handlers={"meter": offer("one more turn", events=["EventTurnEnd"])},
        hooks={"clock": "It is noon."},
        transformers={"alias": "show $input"},
        providers={"acme": [delta("Hel"), delta("lo"), say("!")]},
    )

`sdk="go"` (the default) is on FD 3 and 4 and has all ten kinds, `sdk="typescript"` is on stdin and stdout and has three. Whatever a
guest can do wrong is a step, `fault(name)`, and can be taken anywhere: in a handler, `at_start`, `at_init`, in place of the answer
to `initialize`, `after_init`. `FAULTS` lists them.

They are written from the specification alone: nothing here, nor in the programs, imports another part of Serai.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tests.support.piglet_guests.guest_folder import Answer as Answer
    from tests.support.piglet_guests.guest_folder import Offer as Offer
    from tests.support.piglet_guests.guest_folder import interceptor as interceptor
    from tests.support.piglet_guests.guest_folder import offer as offer
    from tests.support.piglet_guests.guest_folder import write as write
    from tests.support.piglet_guests.steps import FAULTS as FAULTS
    from tests.support.piglet_guests.steps import Step as Step
    from tests.support.piglet_guests.steps import ask as ask
    from tests.support.piglet_guests.steps import crash as crash
    from tests.support.piglet_guests.steps import delta as delta
    from tests.support.piglet_guests.steps import echo as echo
    from tests.support.piglet_guests.steps import fail as fail
    from tests.support.piglet_guests.steps import fault as fault
    from tests.support.piglet_guests.steps import hear as hear
    from tests.support.piglet_guests.steps import note as note
    from tests.support.piglet_guests.steps import publish as publish
    from tests.support.piglet_guests.steps import relay as relay
    from tests.support.piglet_guests.steps import result as result
    from tests.support.piglet_guests.steps import say as say
    from tests.support.piglet_guests.steps import seen as seen
    from tests.support.piglet_guests.steps import subscribe as subscribe
    from tests.support.piglet_guests.steps import tell as tell
    from tests.support.piglet_guests.steps import throw as throw
    from tests.support.piglet_guests.steps import wait as wait
    from tests.support.piglet_guests.steps import where as where

_OF_THE_FOLDER = ("Answer", "Offer", "interceptor", "offer", "write")


def __getattr__(name: str) -> Any:  # the programs import this package and need none of it
    from tests.support.piglet_guests import guest_folder, steps

    return getattr(guest_folder if name in _OF_THE_FOLDER else steps, name)
