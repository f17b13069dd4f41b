"""Settings of ``headgate relay``: keys of its TOML file, and options of the command."""

from __future__ import annotations

from typing import Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from headgate.config._model import FilePath, LocalPath, Model, RulesByTable
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
    mask_key_env: str | None = Field(default=None, description="environment variable with the key of rules `hash`")
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

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if self.disk_bytes and self.state is None:
            raise ValueError("a buffer on disk needs a state folder")
        if 0 < self.disk_bytes < self.memory_bytes:
            raise ValueError(f"disk_bytes ({self.disk_bytes}) is less than memory_bytes ({self.memory_bytes})")
        if self.log_disk_bytes and self.state is None:
            raise ValueError("a binlog archive needs a state folder")
        if 0 < self.log_disk_bytes < _LEAST_ARCHIVE:
            raise ValueError(f"log_disk_bytes ({self.log_disk_bytes}) is less than {_LEAST_ARCHIVE}; 0: no archive")
        return self

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.scn in SCNS_OF_COLUMNS) != (self.scn_column is not None):
            raise ValueError(f"{' and '.join(SCNS_OF_COLUMNS)} need scn_column, and no other kind of SCN uses it")
        if self.tls_key is not None and self.tls_cert is None:
            raise ValueError("tls_key is set, but tls_cert is not")
        if self.policies.hides_values and self.log_disk_bytes:
            raise ValueError(
                "the binlog archive has every value as it was logged, and [columns] hides some: remove log_disk_bytes,"
                " or serve pipelines by another relay, without these rules"
            )
        return self
