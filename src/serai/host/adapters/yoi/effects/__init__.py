"""What plugins may do outside of themselves (spec yoi 4, 5, 6): performed here, in the host, after both checks and at every call.

A worker asks by name and with plain values, and is not believed: it runs somebody else's code. Each call has what remains of the
plugin's own deadline and not more (spec yoi 21.30), and may be cancelled at any moment.
"""

from serai.host.adapters.yoi.effects.host_calls import HostCalls
from serai.host.adapters.yoi.effects.network import PluginNetwork
from serai.host.adapters.yoi.effects.websocket import PluginWebSocket, ReceiveTimeout, dial

__all__ = ["HostCalls", "PluginNetwork", "PluginWebSocket", "ReceiveTimeout", "dial"]
