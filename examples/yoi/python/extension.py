"""Notes in a folder, read and written through the host: a plugin in Python. README.md tells how to try it."""

from __future__ import annotations

from typing import Any

from serai.sdk import Extension, IngressEvent, ToolError

ext = Extension("notes-python", version="0.1.0")

heard: list[str] = []  # what an instance keeps lives as long as it does


@ext.tool
async def py_count(path: str) -> dict[str, int]:
    """Count the lines and words of a note.

    Args:
        path: the note, from the folder that was granted
    """
    if not path.endswith(".txt"):
        raise ToolError(f"{path} is no note: notes are .txt files", code="INVALID_INPUT")
    text = ext.host.fs.read_text(path)
    return {"lines": len(text.splitlines()), "words": len(text.split())}


@ext.tool
def py_heard() -> str:
    """What came in since the plugin was started."""
    return "; ".join(heard) or "nothing"


notes = ext.service("py_notes", description="Keeps what comes in.")


@notes.start
def start(config: Any) -> None:
    heard.clear()
    if isinstance(config, dict) and "first" in config:
        heard.append(str(config["first"]))


@notes.status
def status() -> dict[str, int]:
    return {"heard": len(heard)}


@ext.ingress("py_in", description="A text to keep as a note.", kinds=["text"])
def keep(event: IngressEvent) -> dict[str, int]:
    text = event.text
    if not text.strip():
        raise ValueError("a note needs a text")
    heard.append(text)
    ext.host.fs.write(f"heard-{len(heard)}.txt", text)
    event.report(f"kept note {len(heard)}", heard=len(heard))
    return {"kept": len(heard)}


ext.main()
