"""State shared by successive dumps of one reader: decoder options, and queries on other connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from headgate.gtid import Gtid
from headgate.mysql import ConnectionSettings, read_facts
from headgate.positions import Position
from headgate.replication._decoder import LogDecoder
from headgate.replication._defaults import Defaults
from headgate.replication._definitions import Definitions
from headgate.replication._log_read import LogRead
from headgate.replication._tables import DecodeOptions, Lookups
from headgate.replication._transport import TRANSPORT, Transport
from headgate.replication._xa import PreparedTransactions

__all__ = ["LogDecoding"]


class LogDecoding:
    """Factory of decoders for a reader's dumps. XA transactions come out where they are committed."""

    def __init__(self, settings: ConnectionSettings, options: DecodeOptions, transport: Transport = TRANSPORT) -> None:
        self._settings, self._options, self._transport = settings, options, transport
        self._definitions = Definitions(settings, transport=transport)
        self._prepared = PreparedTransactions(settings, self._decoder, transport, options.held_bytes)

    def begin(self, server_uuid: str, read: LogRead, skip: tuple[Gtid, int] | None) -> LogDecoder:
        """Return a decoder for a dump of this server that has begun."""
        self._definitions.server_uuid = server_uuid
        self._prepared.begin(server_uuid)
        inside = read.wanted is not None
        return self._decoder(read.bounds, inside=inside, skip=skip, prepared=self._prepared)

    def close(self) -> None:
        """Close connections at a dump's end."""
        self._definitions.close()

    def _decoder(
        self,
        transactions: Position,
        *,
        inside: bool = True,
        skip: tuple[Gtid, int] | None = None,
        prepared: PreparedTransactions | None = None,
    ) -> LogDecoder:
        """Return a decoder. Without ``prepared`` it yields rows where they are logged, committed or not."""
        definitions = self._definitions
        defaults = Defaults(definitions)
        lookups = Lookups(defaults.at, definitions.at, self._case_lookup())
        return LogDecoder(transactions, self._options, lookups, inside=inside, skip=skip, prepared=prepared)

    def _case_lookup(self) -> Callable[[], bool]:
        """Return a query, made only once: whether the server stores names in lower case."""

        @cache
        def lower_case() -> bool:
            with self._transport.connect(self._settings) as connection:
                return read_facts(connection).lower_case_table_names == 1

        return lower_case
