"""``headgate relay``: the changes of servers for any number of consumers."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from headgate.cli._common import Format, warn, write_lines
from headgate.cli._interrupt import on_interrupt
from headgate.cli._settings import setting
from headgate.cli.log_lines import LogFormatOption, LogLevel, LogLevelOption, log_to_stderr
from headgate.config import RelaySettings, ScnKind
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.gtid import GtidSet
    from headgate.relay.server import PhysicalSource, RelayConfig, Tenant

__all__ = ["command"]

_SWITCH_SECONDS: Final = 0.0005
"""A thread that answers consumers releases the interpreter at each system call, and waits this long to get it back from
a log reader. Python's default of 5 ms would be most of an event's delay.
"""

_IDLE_SECONDS: Final = 600
"""How long an idle connection stays open. Databus's client sends nothing while its buffer is full, and its consumer has
300 s. If the connection ends in the middle of a window, it gets the whole window again (``RelayPullThread.java``).
"""


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
    port: Annotated[int | None, setting(RelaySettings, "port", overrides=True)] = None,
    host: Annotated[str | None, setting(RelaySettings, "host", metavar="ADDRESS", overrides=True)] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A token that every request needs. Several: [\\[tenants]] in relay.toml.",
        ),
    ] = None,
    tls_cert: Annotated[Path | None, setting(RelaySettings, "tls_cert", metavar="FILE")] = None,
    tls_key: Annotated[Path | None, setting(RelaySettings, "tls_key", metavar="FILE")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve every client, on any address, without a token.")
    ] = False,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="current|earliest|TIME|GTIDSET",
            help="Where to begin without a saved state: now, at the oldest log, at the first transaction from a"
            " time on (2026-11-21T10:00:00Z), or after a GTID set.",
        ),
    ] = "current",
    reset: Annotated[
        bool,
        typer.Option(
            "--anew", help="Begin at --from despite a saved state, after the log was reset or purged. SCNs continue."
        ),
    ] = False,
    state: Annotated[Path | None, setting(RelaySettings, "state", metavar="DIR")] = None,
    schemas: Annotated[Path | None, setting(RelaySettings, "schemas", metavar="DIR")] = None,
    scn: Annotated[ScnKind | None, setting(RelaySettings, "scn", metavar="KIND", overrides=True)] = None,
    scn_column: Annotated[str | None, setting(RelaySettings, "scn_column", metavar="COLUMN")] = None,
    event_version: Annotated[Literal[1, 2] | None, setting(RelaySettings, "event_version", overrides=True)] = None,
    before_images: Annotated[bool, setting(RelaySettings, "before_images", "--before-images")] = False,
    disk_bytes: Annotated[int | None, setting(RelaySettings, "disk_bytes", overrides=True)] = None,
    log_disk_bytes: Annotated[int | None, setting(RelaySettings, "log_disk_bytes", overrides=True)] = None,
    log_level: LogLevelOption = LogLevel.info,
    log_format: LogFormatOption = Format.text,
) -> None:
    """Serve the changes of servers to any number of consumers, in the protocol of LinkedIn's Databus, until Ctrl-C.

    One reader follows each log, for all consumers. It writes nothing to the servers and locks no tables. Consumers may
    be `headgate consume`, programs in Python, or anything that speaks HTTP. docs/reference/relay.md describes Databus's
    own Java client, which the tests do not cover.

    Examples:
      headgate relay --sources relay.toml
      headgate relay -Y conf/sources-or-person.json --port 11115
      headgate relay -Y conf/sources-or-person.json --properties conf/relay_or_person.properties
      headgate relay -Y relay.toml --host 0.0.0.0 --token-file /run/secrets/relay --tls-cert relay.pem
      headgate relay -Y relay.toml --state ./relay-state --disk-bytes 10000000000 --from earliest
    """
    from headgate.relay.server import load_relay

    files = [Path(one) for option in sources for one in option.split(",")]
    config = load_relay(files, properties)
    changes: dict[str, Any] = {
        "port": port,
        "host": host,
        "state": state,
        "schemas": schemas,
        "scn": scn,
        "scn_column": scn_column,
        "event_version": 2 if before_images and event_version is None else event_version,
        "before_images": before_images or None,
        "disk_bytes": disk_bytes,
        "log_disk_bytes": log_disk_bytes,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tenants": None if token_file is None else _with_token(config, token_file),
    }
    config = config.changed(**{name: value for name, value in changes.items() if value is not None})
    _check_exposure(config, insecure=insecure)
    log_to_stderr(log_level, log_format)
    _serve(config, start, reset=reset)


def _with_token(config: RelayConfig, file: Path) -> tuple[Tenant, ...]:
    from headgate.relay.server import Tenant
    from headgate.web import Token

    if config.tenants:
        raise ConfigError("the relay's file has tenants with tokens: remove --token-file")
    return (Tenant("default", Token.from_file(file)),)


def _check_exposure(config: RelayConfig, *, insecure: bool) -> None:
    """Refuse to serve changes to other machines by accident."""
    from headgate.web import is_loopback

    if is_loopback(config.host):
        return
    if config.tenants:
        if config.tls_cert is None:
            warn(f"tokens and changes cross the network to {config.host} unencrypted: use --tls-cert")
    elif insecure:
        warn(f"every client that reaches {config.host} can read all changes: keep the port inside a trusted network")
    else:
        raise ConfigError(
            f"on {config.host} others could read all changes: use --token-file or tenants, or --insecure to allow it"
        )


def _serve(config: RelayConfig, start: str, *, reset: bool) -> None:
    from headgate.relay.server import Relay, create_app
    from headgate.web.serving import Serving

    def start_at(source: PhysicalSource) -> GtidSet:
        from headgate.gtid import GtidSet
        from headgate.mysql import Connection, check_required
        from headgate.positions import gtids_of
        from headgate.replication import start_of

        with Connection.open(source.settings) as connection:
            check_required(connection, kinds=[GtidSet], ordered=False)
            return gtids_of(start_of(connection, start)[0], "a relay")

    sys.setswitchinterval(_SWITCH_SECONDS)
    ended = threading.Event()
    relay = Relay(config, start_at, reset=reset)
    tls = None if config.tls_cert is None else (config.tls_cert, config.tls_key)
    serving = Serving(
        create_app(relay),
        config.host,
        config.port,
        name="headgate-relay-http",
        tls=tls,
        connections=relay.counters,
        idle_seconds=_IDLE_SECONDS,
    )
    with relay, serving, on_interrupt(ended.set):
        gc.freeze()  # exclude loaded objects from collections, which would delay all threads
        write_lines([serving.url])
        ended.wait()
