"""What plugins may do outside of their worker (spec yoi 4, 5, 6): performed here, in the host, after both checks and at every
call.

`host_calls` routes the calls of one instance to `files`, `network` and `websocket`; `threads` bounds the threads of those that may
hang. A worker runs somebody else's code, so nothing that it sends is trusted. A call has what remains of the plugin's own deadline
and not more (spec yoi 21.30), and may be cancelled at any moment.
"""

from serai.host.adapters.yoi.effects.host_calls import HostCalls
from serai.host.adapters.yoi.effects.network import PluginNetwork
from serai.host.adapters.yoi.effects.websocket import PluginWebSocket, ReceiveTimeout, dial

__all__ = ["HostCalls", "PluginNetwork", "PluginWebSocket", "ReceiveTimeout", "dial"]
