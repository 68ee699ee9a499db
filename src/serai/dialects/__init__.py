"""One wire protocol each: typed messages and their rules, sans-IO. None imports another.

Each has `messages`, `host_side` and `peer_side`, and where it needs them `events` (what a side returns), `neutral` (to and from
`serai.model`) and `manifest`. Its `README.md` lists the files and the choices.
"""
