"""A lookout: keeps what was sighted in mind, sums it up, and keeps everybody away from secrets. Made with `serai.sdk`."""

import json
from contextlib import suppress
from typing import Annotated

from serai.sdk import Allow, Block, Extension, NoService, Refused, SetStatus, ToolCall

ext = Extension("lookout", version="1.0.0")
sightings: list[str] = []

# Stands in the system prompt of every conversation; sections are in ascending order.
ext.prompt_section("Lookout", "Report what looks odd with `sight` as soon as you see it.", order=50, tokens=15)


# `prompt_hint` is a line in the prompt's notes on tools. Others can hear of it on the bus: `ext.host` is what the host can do.
@ext.tool(prompt_hint="for whatever looks odd")
async def sight(what: Annotated[str, "what is to be seen"], where: Annotated[str, "a file, or a place in it"] = "") -> str:
    "Report something that looks odd."
    sightings.append(f"{what} ({where})" if where else what)
    with suppress(NoService, Refused):  # a host may have no bus, or none for us: then nobody hears of it
        await ext.host.bus.publish("lookout:sighting", {"what": what, "where": where})
    return f"noted as number {len(sightings)}"


# A text is shown. The model that sums it up is the host's: no key is needed here.
@ext.command("sightings", "sum up what was sighted")
async def sum_up() -> str:
    if not sightings:
        return "nothing was sighted"
    answer = await ext.host.chat("\n".join(sightings), system="Sum this up in one sentence.", model="small", max_tokens=200)
    return f"{len(sightings)} sighted: {answer.text}"


# Asked before every tool call, whoever's tool it is; the highest priority first. It reads text, not minds.
@ext.intercept("tool_call", name="secrets", priority=2000)
def keep_away(call: ToolCall) -> Allow | Block:
    if ".env" in json.dumps(call.args):
        return Block(f"lookout: {call.name} may not touch .env; ask the person for what you need from it")
    return Allow()


# What it returns stands in the system prompt while this message is worked on.
@ext.message_hook(priority=500)
def remind(message: str) -> str:
    return f"Sighted so far: {'; '.join(sightings)}." if sightings and "odd" in message else ""


@ext.on_event("EventToolEnd")
def count() -> SetStatus | None:
    return SetStatus("lookout", f"{len(sightings)} sighted") if sightings else None


@ext.shortcut("ctrl+l", "show what was sighted")
def show() -> str:
    return "\n".join(sightings) or "nothing was sighted"


ext.main()
