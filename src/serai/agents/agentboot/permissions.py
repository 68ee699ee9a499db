"""The seed's permission types (spec agents 1.16)."""

from __future__ import annotations

from serai.compat.agentboot.permissions import (
    SECOND,
    AskRequest,
    AskResult,
    PermissionConfig,
    PermissionRequest,
    PermissionResponse,
    PermissionResult,
)

__all__ = [
    "SECOND",
    "AskRequest",
    "AskResult",
    "PermissionConfig",
    "PermissionRequest",
    "PermissionResponse",
    "PermissionResult",
]
