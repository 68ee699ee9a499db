"""Programs that run by themselves around and inside a box. Standard library only: they start without site-packages.

`launcher` makes a box and ends it, `keeper` holds one that outlives the command that made it, `box_server` runs inside. The
launcher uses `box_setup`, `confinement` and one of `namespace_box`, `bubblewrap_box` and `plain_box`; the server uses
`box_command`, `file_tree` and `frames`. Importing this package loads nothing.
"""
