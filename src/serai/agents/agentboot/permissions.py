"""The seed's permission types. They are the policy's own, which decides with them (`serai.policy.permitting`, spec agents 1.16)."""

from __future__ import annotations

from serai.policy.permissions import (
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
