"""The dialect `piglet`: JSON-RPC extensions, protocol version 5 (seed 004, spec piglet)."""
