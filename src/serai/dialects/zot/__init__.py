"""The dialect zot: extension processes that speak newline-delimited JSON (seed 001)."""
