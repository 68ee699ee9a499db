"""The backends of boxes, one in each module; `serai.boxes.backend` finds them by name."""
