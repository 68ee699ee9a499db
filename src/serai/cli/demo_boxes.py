"""The act of `serai demo` that shows a box: a hook mints a token for it, a command runs in it, the token is revoked with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from serai.boxes import Boxes, Hook
from serai.cli.demo_guests import examples
from serai.errors import HookFailed, MachineError

if TYPE_CHECKING:
    from serai.cli.demo import Stage

__all__ = ["boxes"]

COMMAND = """
echo "$(hostname), uid $(id -u); in sight: $(ls -A /home | wc -l) homes, $(ls /proc | grep -c "^[0-9]") processes," \
  "network $(sed -n 's/: .*//p' /proc/net/dev | xargs); $(stat -c 'its token has mode %a and %s bytes' /root/.config/token)"
"""


async def boxes(stage: Stage) -> None:
    stage.begin("box", "A box, with a hook at its birth and death")
    tokens = stage.place / "tokens"
    tokens.mkdir()
    async with Boxes(str(stage.place / "boxes"), recorder=stage.recorder) as house:
        stage.tags.append(house.spawner.tag)
        if missing := house.backend("namespaces").missing:
            stage.say("machine", f"no boxes here: {missing}", fg="yellow")
            return
        try:
            await _born_and_gone(stage, house, tokens)
        except MachineError as error:  # it says no later than usual
            stage.say("machine", f"no box here: {error}", fg="yellow")


async def _born_and_gone(stage: Stage, house: Boxes, tokens: Path) -> None:
    def count() -> str:
        return f"tokens at its server: {len(os.listdir(tokens))}"

    hook = Hook(str(examples("hooks") / "token_sdk.py"), "token", {"TOKENS_DIR": str(tokens), "PATH": stage.environ["PATH"]})
    async with house.box("demo", hooks=[hook]) as box:
        stage.say(hook.name, f"the hook has done its work for the box {box.id}; {count()}")
        result = await box.exec(COMMAND)
        stage.say("box", result.text or result.stderr.decode(errors="replace"), fg="green" if result.exit_code == 0 else "red")
    stage.say(hook.name, f"the box is destroyed; {count()}")
    failing = stage.place / "fails"
    failing.write_text("#!/bin/sh\necho the licence server is down >&2; exit 3\n")
    failing.chmod(0o755)
    try:
        await house.create("second", hooks=[hook, Hook(str(failing), "licence")])
    except HookFailed as error:
        stage.say("licence", f"no second box: {error.message}; {count()}", fg="red")
