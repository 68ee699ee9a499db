"""A hook with the SDK: a file for each box and a state."""

from __future__ import annotations

from serai.sdk.hook import File, Request, Response, main


def handle(request: Request) -> Response:
    return Response(files=[File("/root/.token", content="token")], state=request.box.box_id)


main(handle)
