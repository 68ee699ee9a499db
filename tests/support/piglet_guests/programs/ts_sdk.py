"""A guest that behaves on the wire as one made with piglet's TypeScript SDK: stdin and stdout only, three kinds of registrations,
no host services, no cancellation (spec piglet 2.1, 8.1).
"""

from __future__ import annotations

from tests.support.piglet_guests.programs.connection import STDIO
from tests.support.piglet_guests.programs.guest import Guest, behaviour


class TsGuest(Guest):
    unknown_method = "Unknown method: "


def main(file: str) -> None:
    TsGuest(behaviour(file), *STDIO).run()
