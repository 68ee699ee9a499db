"""The shape of seed 002, agentboot, on Serai's sessions: no second runner (spec agents 1).

    boot = agentboot.new()
    boot.register_agent("claude", agentboot.ClaudeAgent())
    handle = await boot.execute("", "/my/project", "make the tests pass")
    async for event in handle.events():
        match event:
            case agentboot.MessageEvent(raw=message): print(message)
            case agentboot.ApprovalRequestEvent(id=id): await handle.respond(id, agentboot.ApprovalResponse(approved=False))
    result, error = await handle.wait()

Methods and functions have the seed's names in Python's spelling; its functions are here under their own names too. Where the seed
returns a value and an error, what fails raises; only `wait` gives both, as both are there. `docs/parity/002-agentboot.md` has each.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
