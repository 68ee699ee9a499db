"""Takes guests in: finds them, starts them, watches over them, registers what they offer and brings calls to them.

Neutral outside `adapters/`: no module here knows a dialect. `finding`, `manifest`, `settings` and `trust` say which guests there
are; `house` and `guest` are where and how they live, and `supervising` sees to their processes; `registry` says who owns what;
`host` takes them in and tells them of events, and `asking` brings calls, commands and keys; `texts` is what they say to prompts;
`services` is what they may ask in return.
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.host.adapter import About, Adapter, Running, Taking
    from serai.host.finding import Found, find
    from serai.host.guest import Guest, State
    from serai.host.host import Host
    from serai.host.judging import Gate
    from serai.host.report import LoadReport
    from serai.host.services import NoServices, Services
    from serai.host.trust import Trust

__all__ = [
    "About",
    "Adapter",
    "Found",
    "Gate",
    "Guest",
    "Host",
    "LoadReport",
    "NoServices",
    "Running",
    "Services",
    "State",
    "Taking",
    "Trust",
    "find",
]

_HOMES = {
    "About": "adapter",
    "Adapter": "adapter",
    "Found": "finding",
    "Gate": "judging",
    "Guest": "guest",
    "Host": "host",
    "LoadReport": "report",
    "NoServices": "services",
    "Running": "adapter",
    "Services": "services",
    "State": "guest",
    "Taking": "adapter",
    "Trust": "trust",
    "find": "finding",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
