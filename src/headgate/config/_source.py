"""``[source]``, and the settings of one table: ``[tables."db.table"]``.

A setting that the Spark source has as an option, too, is declared in :class:`SourceSettings`: its type, range, default
and meaning. ``headgate.spark`` derives its options from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator

from headgate.config._layout import ClusteringColumns, TableProperties
from headgate.config._model import Conflict, FilePath, VariableName, both_set, is_server_url, is_table
from headgate.config._policies import PolicySection, with_policies
from headgate.config._server import ServerLogin
from headgate.config._target import Deletes
from headgate.names import lower_name
from headgate.policies import MaskKey

__all__ = [
    "InconsistentImages",
    "LockHold",
    "SnapshotMode",
    "SourceConfig",
    "SourceSettings",
    "TableConfig",
    "Watermark",
]

InconsistentImages = Literal["reread", "stop", "fail", "skip"]
LockHold = Literal["setup", "read"]
Watermark = Literal["gtid", "signal-table", "lock"]
SnapshotMode = Literal["initial", "initial_only", "no_data", "when_needed", "always"]


class SourceSettings(ServerLogin):
    """The MySQL server, and how it is read: keys of ``[source]``, and options of ``mysql-cdc`` of the same names."""

    tables: tuple[str, ...] = Field(
        description="globs (`*`, `?`, `[…]`) on `db.table`, case-sensitive; `!` removes; the last match wins; wildcards"
        " leave out working tables of gh-ost and pt-online-schema-change"
    )
    chunk_rows: int = Field(
        250_000,
        ge=1,
        description="most rows of a snapshot chunk; fewer if rows are wide and have a key: 128 MB by the server's"
        " statistics",
    )
    max_rows_per_batch: int | None = Field(
        None, ge=1, description="changes in a batch, roughly; a transaction is never divided"
    )
    poll_ms: int = Field(500, ge=10, le=600_000, description="milliseconds between two polls of an idle stream")
    retry_seconds: int = Field(
        600, ge=0, le=86_400, description="seconds to retry when the server cannot be reached or is behind"
    )
    snapshot_new_tables: bool = Field(
        True,
        description="tables that appear later, or that a changed `tables` includes: `true` reads them at once; `false`"
        " follows their changes, and reads them when an `execute-snapshot` signal names them",
    )
    snapshot_cut: Literal["batch", "start"] = Field(
        "batch",
        description="the snapshot with which a stream begins: `batch` reads each part as of the batch that brings it,"
        " in parallel with the live changes; `start` reads all of it as of the log position where the stream began, and"
        " live changes wait until it is done",
    )
    watermark: Watermark = Field(
        "gtid",
        description="what makes the rows of a snapshot exact: `gtid` needs only read access; `lock` also locks the"
        " tables of a chunk, which tables without a key need if they are written all the time; `signal-table` writes a"
        " row to `signal_table`, and also works on servers with `gtid_mode=OFF`",
    )
    lock_hold: LockHold = Field(
        "setup",
        description="tables are locked until a read view of them is open (`setup`), or until their rows are read"
        " (`read`)",
    )
    lock_wait_seconds: int = Field(
        10, ge=1, le=240, description="seconds to wait for a table lock before the read is retried"
    )
    snapshot_locking_mode: Literal["minimal", "extended", "none"] | None = Field(
        None,
        description="locks of the snapshot with which a stream begins, in Debezium's words: `minimal` locks tables"
        " while a read view of them is opened, `extended` until their rows are read, `none` not at all; by default"
        " `watermark` and `lock_hold` decide",
    )
    snapshot_share: float = Field(
        1.0,
        ge=0.01,
        le=1,
        description="the part of a batch's time that table reads may take while there are live changes: with 0.5 a"
        " snapshot makes batches, and so the delay of changes, about twice as long; 1: no limit",
    )
    signal_table: str | None = Field(
        None,
        description="`db.table` with text columns `id`, `type`, `data`: rows inserted there are signals. It need not"
        " be among `tables`; if it is not, its rows do not go to the target",
    )
    relay: str | None = Field(
        None,
        description="`http://host:port` of a [relay](relay.md) that archives the server's log: the log is read from"
        " there, so that many streams share the relay's dump; tables are still read from the server",
    )
    relay_source: str | None = Field(None, description="the relay's physical source, by name, if it has several")
    relay_token_file: FilePath | None = Field(
        None, description="file that holds the relay's token; a relative path starts at the working directory"
    )
    relay_ca_file: FilePath | None = Field(
        None,
        description="PEM file with the certificates to trust, for a relay with `https`; by default the system's; a"
        " relative path starts at the working directory",
    )
    relay_fallback: bool = Field(
        False,
        description="if the relay no longer has a part of the log: `false` stops with an error, `true` reads it from"
        " the server",
    )
    mask_key_env: VariableName | None = Field(
        None, description="environment variable that holds the key of rules `hash` in `[columns]`: 16 bytes or more"
    )
    mask_key_file: FilePath | None = Field(
        None,
        description="file that holds the key of rules `hash` in `[columns]`; a relative path starts at the working"
        " directory",
    )

    @field_validator("relay")
    @classmethod
    def _check_relay(cls, url: str | None) -> str | None:
        if url is not None and not is_server_url(url):
            raise ValueError("expected http://host:port or https://host:port")
        return url

    @field_validator("tables")
    @classmethod
    def _check_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        if not any(not pattern.startswith("!") for pattern in patterns):
            raise ValueError('expected at least one pattern that does not begin with !, such as "shop.*"')
        for pattern in patterns:
            if not is_table(pattern.removeprefix("!")):
                raise ValueError(f'{pattern!r} is not a table pattern; expected db.table, such as "shop.*"')
        return patterns

    @field_validator("signal_table")
    @classmethod
    def _check_signal_table(cls, name: str | None) -> str | None:
        if name is not None and not is_table(name):
            raise ValueError('expected db.table, such as "shop.signals"')
        return name

    def _conflicts(self) -> Iterator[Conflict]:
        yield from super()._conflicts()
        yield from both_set([name for name in ("mask_key_env", "mask_key_file") if getattr(self, name)])
        if self.watermark == "signal-table" and self.signal_table is None:
            yield "watermark signal_table", "watermark = signal-table needs signal_table, as db.table"
        if self.watermark == "signal-table" and self.relay is not None:
            yield "watermark relay", "relay and watermark = signal-table do not go together: a relay's log has GTIDs"
        if self.watermark != "lock":
            yield from self._conflicts_of_locks()
        if self.relay is None:
            for name in ("relay_source", "relay_token_file", "relay_ca_file", "relay_fallback"):
                if getattr(self, name):
                    yield f"relay {name}", f"{name} needs relay, http://host:port"

    def _conflicts_of_locks(self) -> Iterator[Conflict]:
        """Yield the settings of locks that have no effect, because watermarks are other ones."""
        defaults = SourceSettings.model_fields
        if self.lock_hold != defaults["lock_hold"].default:
            yield "watermark lock_hold", 'lock_hold needs watermark = "lock"'
        locks = self.snapshot_locking_mode not in (None, "none")
        if self.lock_wait_seconds != defaults["lock_wait_seconds"].default and not locks:
            needs = 'watermark = "lock", or snapshot_locking_mode = "minimal" or "extended"'
            yield "watermark lock_wait_seconds snapshot_locking_mode", f"lock_wait_seconds needs locks: {needs}"

    @property
    def mask_key(self) -> MaskKey | None:
        """Where the key of rules ``hash`` is."""
        return MaskKey.of(self.mask_key_env, self.mask_key_file)

    def as_options(self) -> dict[str, str]:
        """Return the options of ``mysql-cdc`` for what differs from the defaults."""
        values = self.model_dump(mode="json", include={*SourceSettings.model_fields}, exclude_defaults=True)
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


@with_policies(of_table=False)
class SourceConfig(SourceSettings, PolicySection):
    """The MySQL server, and how it is read."""

    snapshot_mode: SnapshotMode = Field(
        "initial",
        description="`initial`: read the tables when the pipeline begins, then follow them; `initial_only`: end the"
        " run when they are read; `no_data`: follow them from now on, and read them when an `execute-snapshot` signal"
        " names them; `when_needed`: as `initial`, and read them again if the server has purged the next part of the"
        " log; `always`: as `when_needed`, and at each start",
    )
    start: str = Field(
        "current",
        min_length=1,
        description="where a new pipeline begins to follow changes, with `snapshot_mode` `no_data` or `initial`:"
        " `current` (now; with `initial` also called `snapshot`), `earliest` (the oldest log that the"
        " server has), a time such as `2026-01-02T03:04:05Z` (the first transaction"
        " committed then or later), a GTID set of everything already had, or, on a server without GTIDs,"
        " `file:position`. A pipeline that has begun continues where it is",
    )

    def _conflicts(self) -> Iterator[Conflict]:
        yield from super()._conflicts()
        if self.start == "current" or (self.start == "snapshot" and self.snapshot_mode != "no_data"):
            return
        mode = "start snapshot_mode"
        if self.start == "snapshot":
            yield mode, 'start = "snapshot" reads tables, and snapshot_mode = "no_data" reads none: use "current"'
        elif self.snapshot_mode not in ("no_data", "initial"):
            begins = f"{self.snapshot_mode} begins with the tables as they are now"
            yield mode, f"start is for snapshot_mode no_data and initial; {begins}"
        elif self.snapshot_cut == "start":
            together = 'start and snapshot_cut = "start" do not go together'
            yield "start snapshot_cut", f"{together}: tables are read as they are now"

    @property
    def first_position(self) -> str | None:
        """Where a new pipeline begins, if that is not where its snapshot does."""
        return None if self.start in ("current", "snapshot") and self.snapshot_mode != "no_data" else self.start


@with_policies(of_table=True)
class TableConfig(PolicySection):
    """Policies of one table."""

    schema_changes: Literal["evolve", "strict"] = Field(
        "evolve",
        description="an ALTER that may change rows: `evolve` reads the table again; `strict` stops the table. Without"
        " `current` and `history` in `target.mode` an ALTER does neither",
    )
    inconsistent_images: InconsistentImages | None = Field(
        None,
        description="changes whose columns are unknown, or other than the table's, although no statement explains it:"
        " `reread` reads the table again; `stop` stops it; `fail` ends the run, and nothing of the batch is applied;"
        " `skip` leaves them out with a warning, and the table is `inexact` until it is read again."
        " Without it, unknown columns stop the table, and other ones are treated as `schema_changes` says. Without"
        " `current` and `history` in `target.mode` it is about unknown columns alone",
    )
    condition: str | None = Field(
        None,
        min_length=1,
        description="SQL over the table's columns: snapshots bring only the rows that meet it; changes are followed"
        " for all rows",
    )
    deletes: Deletes | None = Field(None, description="as in `[target]`, for this table")
    properties: TableProperties = Field(
        default_factory=dict, description="as in `[target]`, for this table: these come first"
    )
    cluster_by: ClusteringColumns = Field(
        (),
        description="up to four columns of the table in the lake, by which OPTIMIZE"
        " [clusters](../how-to/shaping-tables/layout.md#clustering) its files: readers skip files that a condition on"
        " these columns excludes. The next run follows a change, without a rewrite of files",
    )
    foreign_keys: Literal["refuse", "accept"] = Field(
        "refuse",
        description="a table whose rows foreign keys change by CASCADE or SET NULL, on a server that does not log"
        " this: `refuse` ends the run before it begins, and stops a table that gets such a key later; `accept` follows"
        " the logged changes only; the table is then `inexact`, not `live`",
    )

    def _conflicts(self) -> Iterator[Conflict]:
        if self.condition is not None and self.policy("rows") is not None:
            yield "condition rows", "rows and condition are both set: rows is for snapshots, too; keep one"
        key = self.policy("key") or ()
        if len({lower_name(name) for name in key}) < len(key):
            yield "key", "key names a column twice"
        if key and self.foreign_keys == "accept":
            both = 'key and foreign_keys = "accept" are both set'
            yield "key foreign_keys", f"{both}: rows that change unseen are not counted"
