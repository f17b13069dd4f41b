"""``headgate relay``: the log of servers for any number of consumers."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli._common import warn, write_lines
from headgate.cli._interrupt import on_interrupt
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.gtid import GtidSet
    from headgate.relay import PhysicalSource, RelayConfig

__all__ = ["command"]


def command(
    sources: Annotated[
        list[str],
        typer.Option(
            "--sources",
            "-Y",
            metavar="FILE[,FILE]",
            help="Databus's sources JSON, one for each server (repeatable), or a relay.toml.",
            show_default=False,
        ),
    ],
    properties: Annotated[
        Path | None, typer.Option("--properties", metavar="FILE", help="Databus's relay properties, for the JSON.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port (by default the file's, else 11115); 0: any.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on, by default 127.0.0.1.")] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="current|earliest|GTIDSET",
            help="Where to begin without a saved state: now, at the oldest log there is, or after a GTID set.",
        ),
    ] = "current",
    anew: Annotated[
        bool,
        typer.Option(
            "--anew",
            help="Begin at --from although there is a state: after a log that began anew, or was purged. SCNs go on.",
        ),
    ] = False,
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where positions, SCNs and the buffer's files are kept.")
    ] = None,
    schemas: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of Avro schemas, read and written.")
    ] = None,
    scn: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="gtid-generation (default), binlog-offset, relay-generated, application or source-generated.",
        ),
    ] = None,
    scn_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="What the last two are made of: a column, or db.table.column."),
    ] = None,
    event_version: Annotated[
        int | None, typer.Option(min=1, max=2, help="Of Databus's events; 2 goes out as 1 to those who ask for it.")
    ] = None,
    disk_bytes: Annotated[
        int | None, typer.Option(min=0, help="Keep so much of each buffer in files, for restarts and slow consumers.")
    ] = None,
) -> None:
    """Serve the changes of servers to any number of consumers, in the protocol of LinkedIn's Databus, until Ctrl-C.

    One reader follows each log, whoever listens. It writes nothing to the servers and locks nothing. Consumers may be
    Databus's own clients, or anything that speaks HTTP.

    Examples:
      headgate relay --sources conf/sources-or-person.json --port 11115

      headgate relay -Y conf/sources-or-person.json --properties conf/relay_or_person.properties

      headgate relay -Y relay.toml --state ./relay-state --disk-bytes 10000000000 --from earliest
    """
    from headgate.relay import load_relay

    files = [Path(one) for given in sources for one in given.split(",")]
    config = load_relay(files, properties)
    changes: dict[str, Any] = {
        "port": port, "host": host, "state": state, "schemas": schemas, "scn": _kind(scn), "scn_column": scn_column,
        "event_version": event_version, "disk_bytes": disk_bytes,
    }  # fmt: skip
    config = replace(config, **{name: value for name, value in changes.items() if value is not None})
    if config.host not in ("127.0.0.1", "::1", "localhost"):
        warn(f"whoever reaches {config.host} can read every change: keep the port inside a trusted network")
    _serve(config, start, anew=anew)


def _kind(name: str | None) -> str | None:
    from headgate.relay import KINDS

    if name is not None and name not in KINDS:
        raise ConfigError(f"--scn is {name!r}; expected {', '.join(KINDS)}")
    return name


def _serve(config: RelayConfig, start: str, *, anew: bool) -> None:
    from headgate._serving import Serving
    from headgate.relay import Relay, create_app

    def start_at(source: PhysicalSource) -> GtidSet:
        from headgate.cli._source import check_log, start_of
        from headgate.mysql import Connection

        with Connection.open(source.settings) as connection:
            check_log(connection)
            return start_of(connection, start)[0]

    ended = threading.Event()
    relay = Relay(config, start_at, anew=anew)
    serving = Serving(create_app(relay), config.host, config.port, name="headgate-relay-http")
    with relay, serving, on_interrupt(ended.set):
        write_lines([serving.url])
        ended.wait()
