"""A hook with the SDK: a file for each box and a state."""

from __future__ import annotations

from serai.dialects.hookproto.messages import File, Request, Response
from serai.sdk.hook import main


def handle(request: Request) -> Response:
    return Response(files=[File("/root/.token", content="token")], state=request.box.box_id)


main(handle)
