"""Settings of ``headgate relay``: keys of its TOML file, and options of the command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from pydantic import Field

from headgate.config._model import Conflict, FilePath, LocalPath, Model, RulesByTable, VariableName, both_set
from headgate.policies import POLICY_SETTINGS, MaskKey, Policies, ZeroDates, parse_rules

__all__ = ["SCNS_OF_COLUMNS", "RelaySettings", "SchemaTypes", "ScnKind"]

ScnKind: TypeAlias = Literal["gtid-generation", "binlog-offset", "relay-generated", "application", "source-generated"]
SCNS_OF_COLUMNS: Final[tuple[ScnKind, ...]] = ("application", "source-generated")
"""Kinds of SCNs that take their numbers from a column."""
SchemaTypes: TypeAlias = Literal["exact", "databus"]
_LEAST_ARCHIVE: Final = 1 << 20


class RelaySettings(Model):
    """The relay, beside its sources and tenants. Relative paths start at the file's folder."""

    port: int = Field(
        default=11115, ge=0, le=65535, description="port; the default is that of Databus's example; 0: any"
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    schemas: LocalPath | None = Field(
        default=None, description="folder of Avro schemas, read and written; by default in the state folder"
    )
    state: LocalPath | None = Field(
        default=None,
        description="folder for positions, SCNs, ids and the files of buffers; without it a restart has none of them",
    )
    scn: ScnKind = Field(default="gtid-generation", description="what SCNs are made of")
    scn_column: str | None = Field(
        default=None,
        description="`column` or `db.table.column`: the column of which SCNs are made, for `application` and"
        " `source-generated`",
    )
    generations: LocalPath | None = Field(
        default=None, description="map of generations, for relays that share SCNs; by default in the state folder"
    )
    groups: LocalPath | None = Field(
        default=None, description="folder of consumer groups, if relays share them; by default in the state folder"
    )
    event_version: Literal[1, 2] = Field(default=1, description="version of Databus's events; who requests 1 gets 1")
    before_images: bool = Field(default=False, description="updates also hold the row before them; with version 2")
    types: SchemaTypes = Field(
        default="exact", description="types of DECIMAL, dates and unsigned numbers in the schemas that the relay makes"
    )
    zero_dates: ZeroDates = Field(
        default=POLICY_SETTINGS["zero_dates"].default, description="dates that do not exist, such as 2024-00-00"
    )
    memory_bytes: int = Field(
        default=256 << 20, ge=256 << 10, description="bytes of each server's buffer in memory, at least 256 KiB"
    )
    disk_bytes: int = Field(
        default=0,
        ge=0,
        description="bytes of each server's buffer in files, for restarts and slow consumers: at least as many as in"
        " memory; 0: no files",
    )
    log_disk_bytes: int = Field(
        default=0,
        ge=0,
        description="bytes of each server's log to archive, for [pipelines that read it](#the-log-itself): at least"
        " 1 MiB; 0: no archive",
    )
    columns: RulesByTable = Field(
        default_factory=dict,
        description="[rules for columns](../how-to/shaping-tables/columns.md), as in a pipeline: what they hide is in"
        " no event, row, schema or file of the relay",
    )
    mask_key_env: VariableName | None = Field(
        default=None, description="environment variable with the key of rules `hash`"
    )
    mask_key_file: FilePath | None = Field(default=None, description="file with the key of rules `hash`")
    tls_cert: LocalPath | None = Field(
        default=None, description="certificate of the server and its chain, PEM: the relay serves HTTPS"
    )
    tls_key: LocalPath | None = Field(
        default=None, description="key of the certificate, PEM, unless it is in the same file"
    )

    @property
    def policies(self) -> Policies:
        """How values are read; odd keys are spelled, because consumers may not miss an event."""
        return Policies(
            zero_dates=self.zero_dates,
            ambiguous_keys="spell",
            columns=parse_rules(self.columns),
            mask_key=MaskKey.of(self.mask_key_env, self.mask_key_file),
        )

    def _conflicts(self) -> Iterator[Conflict]:
        yield from self._conflicts_of_files()
        if (self.scn in SCNS_OF_COLUMNS) != (self.scn_column is not None):
            kinds = " and ".join(SCNS_OF_COLUMNS)
            yield "scn scn_column", f"{kinds} need scn_column, and no other kind of SCN uses it; scn is {self.scn}"
        if self.tls_key is not None and self.tls_cert is None:
            yield "tls_key tls_cert", "tls_key is set, but tls_cert is not"
        yield from both_set([name for name in ("mask_key_env", "mask_key_file") if getattr(self, name)])
        if self.policies.hides_values and self.log_disk_bytes:
            hidden = "the binlog archive has every value as it was logged, and [columns] hides some"
            remedy = "remove log_disk_bytes, or serve pipelines by another relay, without these rules"
            yield "columns log_disk_bytes", f"{hidden}: {remedy}"

    def _conflicts_of_files(self) -> Iterator[Conflict]:
        if self.disk_bytes and self.state is None:
            yield "disk_bytes state", "a buffer on disk needs a state folder: disk_bytes is set, and state is not"
        if 0 < self.disk_bytes < self.memory_bytes:
            sizes = f"disk_bytes ({self.disk_bytes}) is less than memory_bytes ({self.memory_bytes})"
            yield "disk_bytes memory_bytes", sizes
        if self.log_disk_bytes and self.state is None:
            yield (
                "log_disk_bytes state",
                "a binlog archive needs a state folder: log_disk_bytes is set, and state is not",
            )
        if 0 < self.log_disk_bytes < _LEAST_ARCHIVE:
            least = f"log_disk_bytes ({self.log_disk_bytes}) is less than {_LEAST_ARCHIVE}; 0: no archive"
            yield "log_disk_bytes", least
