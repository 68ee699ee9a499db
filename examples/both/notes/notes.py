"""Notes that last: one source for hosts of zot and of piglet.

What both have is written once: tools, commands, a guard. What only piglet has (a part of the system prompt, what is added to a
message, a status, host services) is written as well; under zot the SDK says once that it is left out, and the rest works.
"""

from __future__ import annotations

from serai.sdk import Block, Display, Extension, Prompt, SetStatus, ToolCall, ToolError

ext = Extension("notes", version="1.0")
ext.prompt_section("Notes", "What is worth knowing tomorrow is kept with the tool `note`.", order=50)


def lines() -> list[str]:
    file = ext.data_dir / "notes.txt"
    return file.read_text().splitlines() if file.exists() else []


@ext.tool(prompt_hint="keep what is worth knowing tomorrow")
def note(text: str) -> str:
    """Keep a note.

    Args:
        text: one line
    """
    if "\n" in text:
        raise ToolError("a note is one line", code="INVALID_ARGS", hint="keep several, one each")
    ext.data_dir.mkdir(parents=True, exist_ok=True)
    with (ext.data_dir / "notes.txt").open("a") as file:
        file.write(f"{text}\n")
    return f"kept, {len(lines())} in all"


@ext.command("notes")
def notes() -> Display:
    """Show the notes."""
    return Display("\n".join(lines()) or "there are no notes")


@ext.command("digest")
async def digest() -> Display | Prompt:
    """A digest of the notes."""
    question = "Say in one sentence what these notes are about:\n" + "\n".join(lines())
    if hasattr(ext.host, "chat"):  # a model for ourselves, which the conversation does not notice
        answer = await ext.host.chat(question, model="small")
        return Display(answer.text)
    return Prompt(question)


@ext.intercept("tool_call")
def guard(call: ToolCall) -> Block | None:
    return Block("the notes are changed with `note`") if call.name != "note" and "notes.txt" in str(call.args) else None


@ext.message_hook()
def remind(message: str) -> str | None:
    found = [line for line in lines() if any(word in line.lower() for word in message.lower().split() if len(word) > 3)]
    return "From the notes:\n" + "\n".join(found) if found else None


@ext.on_event("EventTurnEnd")
def count() -> SetStatus:
    return SetStatus("notes", f"{len(lines())} notes")


ext.main()
