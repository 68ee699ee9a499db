"""What the tests with real piglet guests share: what a guest's journal says, and files that a guest writes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

# Each test starts processes; what differs between the loops is tested elsewhere.
ONE_LOOP = pytest.mark.asyncio(loop_factories=["asyncio"])
SLOW_RESTART: dict[str, float | None] = {"restart_wait": 60.0, "restart_wait_most": 60.0}


def read_messages(journal: Path, method: str = "") -> list[dict[str, Any]]:
    """The messages that a guest had of its host so far, in order: all requests and notifications, or those of one method."""
    lines = (json.loads(line) for line in journal.read_text().split("\n")[:-1])  # one without its end is being written
    messages = [line["in"] for line in lines if line.get("in", {}).get("method")]
    return [message for message in messages if method in ("", message["method"])]


def read_params(journal: Path, method: str) -> list[Any]:
    """The params of all messages of that method."""
    return [message.get("params") for message in read_messages(journal, method)]


def write_config(tmp_path: Path, text: str) -> None:
    """The person's `config.toml`, in the home of `tests.support.app.apps`."""
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "config.toml").write_text(text)


async def wait_for_note(path: Path) -> str:
    """What a guest has written there with `note`, once it has."""
    async with asyncio.timeout(30.0):
        while not path.exists():
            await asyncio.sleep(0.002)
    return path.read_text()


def write_models(tmp_path: Path, text: str) -> Path:
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "models.toml").write_text(text)
    return tmp_path / "home" / "models.toml"
