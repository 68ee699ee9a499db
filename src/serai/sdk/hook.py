"""For authors of box hooks: a program that Serai runs at a box's birth and death (docs/boxes.md).

    from serai.dialects.hookproto.messages import EVENT_BOX_CREATE, File, Request, Response
    from serai.sdk.hook import main

    def handle(request: Request) -> Response | None:
        if request.event == EVENT_BOX_CREATE:
            token = mint(request.box.box_id)
            return Response(files=[File("/root/.token", content=token)], state=token)
        revoke(request.state)

    main(handle)

Standard library only, and as little of it as can be: the box waits for it.
"""

from __future__ import annotations

import os
import sys

from serai.dialects.hookproto.messages import EVENT_BOX_CREATE, EVENT_BOX_DESTROY, Box, File, Request, Response
from serai.dialects.hookproto.peer_side import HookError, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from serai.dialects.hookproto.peer_side import Handler

__all__ = ["EVENT_BOX_CREATE", "EVENT_BOX_DESTROY", "Box", "File", "HookError", "Request", "Response", "main", "serve"]


def main(handler: Handler) -> NoReturn:
    """Run a hook: read the request from stdin, answer on stdout, exit 0; or `hook: <error>` on stderr and exit 1.

    What else is printed goes to stderr, also by programs that the handler starts: stdout is for the answer alone.
    """
    try:
        answer = os.dup(1)  # which no program that the handler starts inherits
        os.dup2(2, 1)
        with open(0, "rb", closefd=False) as reader:
            writer = open(answer, "wb")
            try:
                serve(reader, writer, handler)
            finally:
                writer.raw.close()  # not itself: it would try again what could not be written, and hide who says so
    except Exception as error:  # whatever it is, the protocol has one way to say it
        print(f"hook: {str(error) or type(error).__name__}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    sys.exit(0)
