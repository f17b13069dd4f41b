"""Headers of a relay's answers and requests, and the Java classes of errors in them (``DatabusHttpHeaders.java``).

Letter case does not count in names of headers. The header of the binlog archive is in ``archive._wire``.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BOOTSTRAP_SERVER",
    "CHECKPOINT",
    "CLIENT_HOST",
    "CLIENT_SERVICE",
    "ERROR",
    "ERROR_CAUSE",
    "ERROR_CAUSE_MESSAGE",
    "ERROR_MESSAGE",
    "INVALID_PARAMETER",
    "PENDING_EVENT_SIZE",
    "PHASE_COMPLETED",
    "PROCESSING_FAILED",
    "PROTOCOL_VERSION",
    "SCN_NOT_FOUND",
    "SERVER_HOST",
    "SERVER_SERVICE",
    "UNKNOWN_COMMAND",
]

ERROR: Final = "x-dbus-error"
"""Class of an error."""
ERROR_MESSAGE: Final = "x-dbus-error-message"
ERROR_CAUSE: Final = "x-dbus-error-cause"
"""Class of its cause, by which clients decide what to do."""
ERROR_CAUSE_MESSAGE: Final = "x-dbus-error-cause-message"
PENDING_EVENT_SIZE: Final = "x-dbus-pending-event-size"
"""Bytes of the next event, if the answer is empty because it is larger than requested."""
PROTOCOL_VERSION: Final = "x-dbus-protocol-version"
"""Version of the answer to ``/register``."""
SERVER_HOST: Final = "x-dbus-server-host"
SERVER_SERVICE: Final = "x-dbus-server-service"
CLIENT_HOST: Final = "x-dbus-client-host"
CLIENT_SERVICE: Final = "x-dbus-client-service"
BOOTSTRAP_SERVER: Final = "x-dbus2-bs-hostport"
"""The bootstrap server as ``host:port``."""
PHASE_COMPLETED: Final = "PhaseCompleted"
"""``TRUE``: the bootstrap's phase is complete."""
CHECKPOINT: Final = "x-headgate-checkpoint"
"""Of decoded rows: the checkpoint to continue from."""

_REQUEST: Final = "com.linkedin.databus2.core.container.request"
INVALID_PARAMETER: Final = f"{_REQUEST}.InvalidRequestParamValueException"
PROCESSING_FAILED: Final = f"{_REQUEST}.RequestProcessingException"
UNKNOWN_COMMAND: Final = f"{_REQUEST}.UnknownCommandException"
SCN_NOT_FOUND: Final = "com.linkedin.databus.core.ScnNotFoundException"
"""A cause: the consumer is too far behind."""
