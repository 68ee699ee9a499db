"""The backends of boxes: `namespaces`, `process`, and `local` with what both share. `serai.boxes.backend` finds them by name."""
