"""Boxes: sandboxes with hooks that run when one is created and destroyed.

`manager` has `Boxes`, which creates, pauses and resumes, and `Box`; `BoxTeardown` (`teardown`) ends a box and recovers those of
dead owners.
`box_records` stores each step before its effect, `ownership` starts and holds a box's processes, in this process or in a keeper.
`backend` is the interface of a backend, `backends` has them, `cgroups` limits and freezes. `box_client` talks to the server inside
a box. `hooks` runs the configured hooks, `hook_process` one program of them.

`programs` has the programs that run by themselves, with the standard library only: the launcher around a box, the box server in
it, the keeper beside it.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
