"""The built-in tools, on real files and with real programs."""
