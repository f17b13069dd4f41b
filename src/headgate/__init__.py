"""headgate: MySQL change data capture for Apache Spark.

These names are the public API: docs/reference/api.md describes them, and CHANGELOG.md lists every change to them. All
except the errors are loaded on first use: ``import headgate`` loads neither numba nor Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import (
    AccessError,
    AmbiguousKeyError,
    BinlogPurgedError,
    ChecksumError,
    ChosenKeyError,
    ChunkRetryError,
    CommitConflictError,
    CommitUnknownError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    CutValueError,
    DecodeError,
    Definite,
    DefiniteServerError,
    EngineError,
    HeadgateError,
    HistoryRewrittenError,
    HookError,
    IncompleteReadError,
    MissingExtraError,
    NotificationError,
    OffsetFormatError,
    PartialImageError,
    PositionError,
    ProtocolError,
    RelayConsumerError,
    RelayDivergedError,
    RelayError,
    RowFilterError,
    SchemaAmbiguousError,
    SchemaChangedError,
    ScnNotFoundError,
    ScnOrderError,
    ServerBehindError,
    ServerError,
    ServerSettingError,
    SinkError,
    SnapshotError,
    SnapshotRefusedError,
    StorageError,
    TargetError,
    Transient,
    TransientServerError,
    TransportError,
    UnreadableTableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from headgate.config import PipelineConfig, load_config
    from headgate.gtid import GtidSet
    from headgate.lake import read_as_of
    from headgate.pipeline import Pipeline
    from headgate.relay.client import Consumer, RelayClient
    from headgate.spark import MySQLCDCDataSource, expand, register
    from headgate.verification import verify

    __version__: str

__all__ = [
    "AccessError",
    "AmbiguousKeyError",
    "BinlogPurgedError",
    "ChecksumError",
    "ChosenKeyError",
    "ChunkRetryError",
    "CommitConflictError",
    "CommitUnknownError",
    "ConfigError",
    "ConnectError",
    "ConnectionLostError",
    "Consumer",
    "CutValueError",
    "DecodeError",
    "Definite",
    "DefiniteServerError",
    "EngineError",
    "GtidSet",
    "HeadgateError",
    "HistoryRewrittenError",
    "HookError",
    "IncompleteReadError",
    "MissingExtraError",
    "MySQLCDCDataSource",
    "NotificationError",
    "OffsetFormatError",
    "PartialImageError",
    "Pipeline",
    "PipelineConfig",
    "PositionError",
    "ProtocolError",
    "RelayClient",
    "RelayConsumerError",
    "RelayDivergedError",
    "RelayError",
    "RowFilterError",
    "SchemaAmbiguousError",
    "SchemaChangedError",
    "ScnNotFoundError",
    "ScnOrderError",
    "ServerBehindError",
    "ServerError",
    "ServerSettingError",
    "SinkError",
    "SnapshotError",
    "SnapshotRefusedError",
    "StorageError",
    "TargetError",
    "Transient",
    "TransientServerError",
    "TransportError",
    "UnreadableTableError",
    "UnsupportedError",
    "__version__",
    "expand",
    "load_config",
    "read_as_of",
    "register",
    "verify",
]

_MODULES: Final = {
    "Consumer": "headgate.relay.client",
    "GtidSet": "headgate.gtid",
    "MySQLCDCDataSource": "headgate.spark",
    "Pipeline": "headgate.pipeline",
    "PipelineConfig": "headgate.config",
    "RelayClient": "headgate.relay.client",
    "expand": "headgate.spark",
    "load_config": "headgate.config",
    "read_as_of": "headgate.lake",
    "register": "headgate.spark",
    "verify": "headgate.verification",
}
"""The modules of the names that are loaded on first use."""


def _load(name: str) -> Any:
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        from headgate.extras import missing_extra_error

        raise missing_extra_error(error) from error


if not TYPE_CHECKING:  # with this, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            value = version("headgate")
        elif name in _MODULES:
            value = _load(name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, value)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
