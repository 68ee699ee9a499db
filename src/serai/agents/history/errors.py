"""What can go wrong with somebody else's transcripts, with the fields of the origin (spec agents 1.11)."""

from __future__ import annotations

from serai.errors import BadSession, NoSession

__all__ = ["InvalidPath", "InvalidSessionFormat", "ProjectNotFound", "SessionNotFound"]


class SessionNotFound(NoSession):
    """No project has a transcript of that id, or it is none: ids are UUIDs. `id` is what was asked for."""

    default_hint = "`serai agent sessions --all` shows what there is"

    def __init__(self, id: str, message: str = "there is no such session", *, hint: str = "") -> None:
        super().__init__(message, who=id, id=id, hint=hint)


class ProjectNotFound(NoSession):
    """That folder has no transcripts. `path` is the folder."""

    default_hint = "`serai agent sessions --all` shows what there is"

    def __init__(self, path: str) -> None:
        super().__init__("the folder has no sessions", who=path)
        self.path = path


class InvalidSessionFormat(BadSession):
    """The file is no transcript, or cannot be read. `file` is its path, `cause` says why; nothing in it was changed."""

    def __init__(self, file: str, cause: str) -> None:
        super().__init__(f"this is no transcript: {cause}", who=file)
        self.file = file
        self.cause = cause


class InvalidPath(BadSession):
    """A folder that cannot be looked at. `cause` says why."""

    default_hint = "name the folder that the agent worked in"

    def __init__(self, path: str, cause: str) -> None:
        super().__init__(f"the folder cannot be looked at: {cause}", who=path)
        self.path = path
        self.cause = cause
