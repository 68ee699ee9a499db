"""Takes guests in: finds them, starts them, watches over them, registers what they offer and brings calls to them.

Neutral outside `adapters/`: no module here knows a dialect. `finding`, `manifest`, `settings` and `trust` say which guests there
are; `house` and `guest` are where and how they live, and `supervising` sees to their processes; `registry` says who owns what;
`host` takes them in and tells them of events, and `asking` brings calls, commands and keys; `texts` is what they say to prompts;
`services` is what they may ask in return.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
