"""Exceptions that headgate raises.

Each leaf is either ``Transient`` (a retry may succeed) or ``Definite`` (a retry fails until the cause is removed).
Retry loops look only at this marker::

    HeadgateError
    ├── ConfigError                 Definite   the user's file, option or argument is wrong
    │   └── MissingExtraError       Definite   an extra of headgate is not installed
    ├── StorageError                Transient  files cannot be used now: the disk is full, a device failed
    │   └── StoreUnavailableError              an object store does not answer
    ├── ServerSettingError          Definite   a server setting that headgate cannot work with
    ├── AccessError                 Definite   wrong password, missing grant
    ├── TransportError              Transient  a connection failed or ended
    │   ├── ConnectError            Transient  could not be opened
    │   │   ├── ArchivesUnavailableError       a repository of Java archives does not answer
    │   │   └── KafkaUnavailableError          Kafka's brokers do not answer
    │   └── ConnectionLostError     Transient  ended while in use
    ├── ServerError                 (by code)  the server answered with an error
    │   ├── DefiniteServerError     Definite
    │   └── TransientServerError    Transient
    ├── ProtocolError               Definite   bytes that the protocol does not allow
    ├── DecodeError                 Definite   an event or value that cannot be decoded
    │   ├── ChecksumError           Definite
    │   ├── UnreadableTableError               one table cannot be read further; a pipeline follows the others
    │   │   ├── AmbiguousKeyError   Definite   two key values would become equal
    │   │   ├── ChosenKeyError      Definite   a key that the user chose is not unique, or has NULL
    │   │   ├── CutValueError       Definite   MySQL returned a cut value, because it exceeds a limit of the server
    │   │   ├── PartialImageError   Definite   a row image leaves out columns that a table's hook needs
    │   │   └── RowFilterError      Definite   which rows pass a table's `rows` cannot be decided
    │   └── UnsupportedError        Definite   known but not supported: names table, column, type or statement
    ├── HookError                   Definite   a user's hook raised an exception, or broke its contract
    ├── SchemaChangedError          Definite   a table's definition does not fit the planned one
    ├── SchemaAmbiguousError        Definite   the log does not name a table's columns, and they are no longer known
    ├── PositionError
    │   ├── BinlogPurgedError       Definite   the log no longer has the required transactions
    │   ├── HistoryRewrittenError   Definite   the same GTIDs name other transactions, or are lost
    │   ├── ServerBehindError       Transient  the server has not executed transactions that were already read
    │   ├── IncompleteReadError     Transient  a range of the log ended before all of it arrived
    │   └── OffsetFormatError       Definite   a stored offset that this version cannot read
    ├── EngineError                 Transient  Spark failed (a worker did not start, a time-out)
    ├── NotificationError           Transient  a channel did not accept a notification
    ├── SnapshotError
    │   ├── SnapshotRefusedError    Definite   a table that cannot be read exactly
    │   └── ChunkRetryError         Transient  a chunk that must be read again
    ├── SinkError
    │   ├── TargetError             Definite   the target refused, or belongs to another program
    │   │   ├── SecondDriverError              another run writes the same target
    │   │   └── SparkFailedError               Spark failed, and a retry would, too
    │   ├── CommitConflictError     Transient  another program changed a table of the target at the same time
    │   └── CommitUnknownError      Transient  a commit got no answer: it was made, or not, or will be
    └── RelayError
        ├── ScnNotFoundError        Definite   a relay no longer has the events after an SCN
        ├── ScnOrderError           Definite   transactions that this kind of SCN cannot number in order
        ├── RelayDivergedError      Definite   two relays assign the same SCN to different transactions
        └── RelayConsumerError      Definite   a relay consumer stopped itself, or used up its retries

Every error is picklable, because Spark moves errors between processes. Its fields are plain values, kept in ``fields``
and readable as attributes. ``str(error)`` is one line that a user can act on; :func:`error_line` adds the entry of its
class in the runbook, where people read it. A ConfigError has none: its line names the key and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

__all__ = [
    "AccessError",
    "AmbiguousKeyError",
    "ArchivesUnavailableError",
    "BinlogPurgedError",
    "ChecksumError",
    "ChosenKeyError",
    "ChunkRetryError",
    "CommitConflictError",
    "CommitUnknownError",
    "ConfigError",
    "ConnectError",
    "ConnectionLostError",
    "CutValueError",
    "DecodeError",
    "Definite",
    "DefiniteServerError",
    "EngineError",
    "HeadgateError",
    "HistoryRewrittenError",
    "HookError",
    "IncompleteReadError",
    "KafkaUnavailableError",
    "MissingExtraError",
    "NotificationError",
    "OffsetFormatError",
    "PartialImageError",
    "PositionError",
    "ProtocolError",
    "RelayConsumerError",
    "RelayDivergedError",
    "RelayError",
    "RowFilterError",
    "SchemaAmbiguousError",
    "SchemaChangedError",
    "ScnNotFoundError",
    "ScnOrderError",
    "SecondDriverError",
    "ServerBehindError",
    "ServerError",
    "ServerSettingError",
    "SinkError",
    "SnapshotError",
    "SnapshotRefusedError",
    "SparkFailedError",
    "StorageError",
    "StoreUnavailableError",
    "TargetError",
    "Transient",
    "TransientServerError",
    "TransportError",
    "UnreadableTableError",
    "UnsupportedError",
    "error_line",
    "runbook_entry",
]


class Transient:
    """Marker: a retry may succeed."""


class Definite:
    """Marker: a retry fails with the same error until its cause is removed."""


class HeadgateError(Exception):
    """Base of all errors of headgate.

    :param message: one line: what happened and, if there is one, the remedy.
    :param fields: plain, picklable values that locate the error: ``gtid``, ``file``, ``pos``, ``table``, ``column``, …

    >>> try:
    ...     headgate.load_config("missing.toml")
    ... except headgate.HeadgateError as error:
    ...     print(isinstance(error, headgate.Definite), error)
    True missing.toml cannot be read: No such file or directory; headgate init writes one
    """

    known_fields: ClassVar[tuple[str, ...]] = ("gtid", "file", "pos", "table", "column", "statement")
    runbook: ClassVar[str | None] = None
    """Anchor of the entry in docs/runbook.md; None: the line itself has the remedy."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = {name: value for name, value in fields.items() if value is not None}

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields")
        if fields is not None and name in fields:
            return fields[name]
        if name in type(self).known_fields:
            return None
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.fields))

    def __str__(self) -> str:
        where = ", ".join(f"{name}={self.fields[name]}" for name in HeadgateError.known_fields if name in self.fields)
        return f"{self.message} [{where}]" if where else self.message


def error_line(error: BaseException, text: str | None = None) -> str:
    """Return an error as one line for people: its text, and the entry of the runbook if its class has one.

    :param text: instead of the error's.
    """
    line = " ".join((str(error) if text is None else text).split()) or type(error).__name__
    entry = runbook_entry(type(error))
    return line if entry is None else f"{line} (see {entry})"


def runbook_entry(kind: type[BaseException]) -> str | None:
    """Return page and anchor of the runbook's entry for an error's class; None: it has none."""
    anchor = kind.runbook if issubclass(kind, HeadgateError) else None
    return None if anchor is None else f"docs/runbook.md#{anchor}"


def _rebuild(kind: type[HeadgateError], message: str, fields: dict[str, Any]) -> HeadgateError:
    error = kind.__new__(kind)
    HeadgateError.__init__(error, message, **fields)
    return error


class ConfigError(HeadgateError, Definite):
    """The user's file, option or argument is wrong. Fields: ``mistakes``, if there are several."""

    known_fields = (*HeadgateError.known_fields, "mistakes")

    @classmethod
    def of(cls, mistakes: Sequence[str], where: str = "") -> Self:
        """Return the error for one or more mistakes.

        :param mistakes: each in one line.
        :param where: begin of each line.
        """
        if len(mistakes) == 1:
            return cls(f"{where}{mistakes[0]}")
        numbered = "; ".join(f"({number}) {one}" for number, one in enumerate(mistakes, 1))
        return cls(f"{where}{len(mistakes)} mistakes: {numbered}", mistakes=tuple(f"{where}{one}" for one in mistakes))

    @property
    def lines(self) -> tuple[str, ...]:
        """The mistakes, each in one line."""
        return self.fields.get("mistakes") or (self.message,)


class MissingExtraError(ConfigError):
    """A package that only an extra of headgate needs is not installed. Fields: ``extra`` (its name, for pip)."""

    known_fields = (*HeadgateError.known_fields, "extra")


class StorageError(HeadgateError, Transient):
    """Files that cannot be read or written now: the disk or quota is full, too many files are open, the device failed,
    an object store does not answer.
    """

    runbook = "disk-full"


class StoreUnavailableError(StorageError):
    """An object store does not answer, or not now."""

    runbook = "object-store-away"


class ServerSettingError(HeadgateError, Definite):
    """A server setting that headgate cannot work with. Fields: ``setting``, ``expected``, ``actual``."""

    known_fields = (*HeadgateError.known_fields, "setting", "expected", "actual")
    runbook = "server-setting"


class AccessError(HeadgateError, Definite):
    """Wrong password or missing privilege. Fields: ``code`` (MySQL error number)."""

    known_fields = (*HeadgateError.known_fields, "code")
    runbook = "access-denied"


class TransportError(HeadgateError, Transient):
    """A connection failed. Fields: ``host``, ``port``."""

    known_fields = (*HeadgateError.known_fields, "host", "port")
    runbook = "server-away"


class ConnectError(TransportError):
    """A connection could not be opened; or the command that prints its password failed."""


class ArchivesUnavailableError(ConnectError):
    """Java archives that Spark needs could not be fetched now: a repository does not answer, or not completely."""

    runbook = "archives-away"


class KafkaUnavailableError(ConnectError):
    """Kafka's brokers do not answer, or are not ready."""

    runbook = "kafka-away"


class ConnectionLostError(TransportError):
    """A connection ended while it was in use."""


class ServerError(HeadgateError):
    """The server answered with an error. Fields: ``code``, ``sqlstate``."""

    known_fields = (*HeadgateError.known_fields, "code", "sqlstate")
    runbook = "server-error"


class DefiniteServerError(ServerError, Definite):
    """A server error that a retry does not cure."""


class TransientServerError(ServerError, Transient):
    """A server error that a retry may cure (deadlock, lock wait, shutdown, too many connections, …)."""


class ProtocolError(HeadgateError, Definite):
    """Bytes that the client/server protocol does not allow."""

    runbook = "server-error"


class DecodeError(HeadgateError, Definite):
    """An event or value that cannot be decoded."""

    runbook = "unreadable-binlog"


class ChecksumError(DecodeError):
    """A binlog event whose CRC32 does not match its bytes."""


class UnreadableTableError(DecodeError):
    """One table cannot be read further. A pipeline stops that table, and follows the others."""

    runbook = "stopped-table"


class AmbiguousKeyError(UnreadableTableError):
    """A key value whose requested form equals that of a different value, so two rows would become one."""


class ChosenKeyError(UnreadableTableError):
    """A key that the user chose does not identify the rows: it is not unique, has NULL, or lacks a column."""


class CutValueError(UnreadableTableError):
    """MySQL cut a value of a result, or made it empty or NULL, because it exceeds a limit of the server.

    Fields: ``setting`` (the limit), ``row`` (of its block, if known).
    """

    known_fields = (*HeadgateError.known_fields, "setting")


class PartialImageError(UnreadableTableError):
    """A row image leaves columns out, so what the table's hook makes of the row is unknown."""


class RowFilterError(UnreadableTableError):
    """Which rows pass a table's ``rows`` expression cannot be decided: an image or the table lacks a column."""


class UnsupportedError(DecodeError):
    """A known feature that headgate does not support; names the table, column and type, or the statement."""


class HookError(HeadgateError, Definite):
    """A user's hook cannot be imported, raised an exception, or broke its contract; names the hook and the table."""

    runbook = "hook-failed"


class SchemaChangedError(HeadgateError, Definite):
    """A table's definition does not fit the planned one or the target's."""

    runbook = "schema-change-refused"


class SchemaAmbiguousError(HeadgateError, Definite):
    """The log does not name a table's columns (``binlog_row_metadata=MINIMAL``) and they can no longer be determined.

    Fields: ``reason``.
    """

    known_fields = (*HeadgateError.known_fields, "reason")
    runbook = "schema-change-refused"


class PositionError(HeadgateError):
    """A problem with a position in the log."""

    runbook = "lost-binlog"


class BinlogPurgedError(PositionError, Definite):
    """The log no longer has the required transactions. Fields: ``needed``, ``purged`` (GTID sets as text)."""

    known_fields = (*HeadgateError.known_fields, "needed", "purged")


class HistoryRewrittenError(PositionError, Definite):
    """The server's GTIDs name other transactions than those already read, or it lost what it had executed."""

    runbook = "failover"


class ServerBehindError(PositionError, Transient):
    """The server has not executed transactions that were already read. Fields: ``missing`` (GTID set as text)."""

    known_fields = (*HeadgateError.known_fields, "missing")
    runbook = "failover"


class IncompleteReadError(PositionError, Transient):
    """A range of the log ended before all of it had arrived. Fields: ``missing`` (GTID set as text)."""

    known_fields = (*HeadgateError.known_fields, "missing")
    runbook = "server-away"


class OffsetFormatError(PositionError, Definite):
    """A stored offset that this version of headgate cannot read."""

    runbook = "unusable-checkpoint"


class EngineError(HeadgateError, Transient):
    """Spark failed for a reason outside the data: a worker did not start in time, a process was lost."""

    runbook = "spark-failed"


class NotificationError(HeadgateError, Transient):
    """A channel did not accept a notification, which is kept and sent again."""

    runbook = "notifications-delayed"


class SnapshotError(HeadgateError):
    """A table or chunk could not be read exactly."""

    runbook = "unread-table"


class SnapshotRefusedError(SnapshotError, Definite):
    """A table that cannot be read exactly; the message says why."""


class ChunkRetryError(SnapshotError, Transient):
    """A chunk that must be read again: its definition changed, or a keyless table was written during the read."""


class SinkError(HeadgateError):
    """A target could not be written."""

    runbook = "refused-target"


class TargetError(SinkError, Definite):
    """The target refused, or belongs to another program."""


class SecondDriverError(TargetError):
    """Another run writes the same target."""

    runbook = "second-driver"


class SparkFailedError(TargetError):
    """Spark failed for a reason that a retry does not remove."""

    runbook = "spark-failed"


class CommitConflictError(SinkError, Transient):
    """Another program changed a table of the target at the same time; nothing was committed."""

    runbook = "second-driver"


class CommitUnknownError(SinkError, Transient):
    """It is not known whether a commit was made. A retry plans on what the log has by then."""

    runbook = "object-store-away"


class RelayError(HeadgateError):
    """A relay cannot number, keep or serve transactions."""

    runbook = "relay-consumer"


class ScnNotFoundError(RelayError, Definite):
    """A relay no longer has the events after an SCN. Fields: ``scn``, ``oldest`` (the oldest SCN it can serve from)."""

    known_fields = (*HeadgateError.known_fields, "scn", "oldest")


class ScnOrderError(RelayError, Definite):
    """Transactions that the chosen kind of SCN cannot number in commit order. Fields: ``scn``."""

    known_fields = (*HeadgateError.known_fields, "scn")


class RelayDivergedError(RelayError, Definite):
    """A relay assigns an SCN to another transaction than the previously consumed relay did. Fields: ``scn``."""

    known_fields = (*HeadgateError.known_fields, "scn")


class RelayConsumerError(RelayError, Definite):
    """A relay consumer stopped itself, or used up its retries."""
