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

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
