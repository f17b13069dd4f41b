"""Beginning at a time: the transactions before it are exactly those in front of the first one that counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headgate.errors import BinlogPurgedError, ConfigError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings
from headgate.positions import Position, read_executed
from headgate.replication import LogRead, start_of, transaction_headers
from headgate_testing import MySQLServer

OFF = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


@pytest.mark.needs_own_server
@pytest.mark.parametrize("variables", [{}, OFF], ids=["gtids", "bytes"])
def test_every_moment_of_a_log_in_several_files(variables: dict[str, str]) -> None:
    with MySQLServer.start(variables) as server:
        settings = ConnectionSettings.from_url(server.url)

        def executed() -> Position:
            with Connection.open(settings) as connection:
                return read_executed(connection).executed

        def before(at_us: int) -> Position:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
            with Connection.open(settings) as connection:
                return start_of(connection, moment.isoformat())[0]

        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        begins, times = [], []
        for n in range(12):
            if n % 3 == 0:
                server.execute("FLUSH BINARY LOGS")
            if n == 6:
                server.execute("FLUSH BINARY LOGS")  # a file without a transaction
            begins.append(executed())
            server.execute(f"INSERT INTO d.t VALUES ({n})")
            (header,) = transaction_headers(LogRead(settings, wanted=executed() - begins[-1]))
            times.append(header.commit_us)
        begins.append(executed())
        assert times == sorted(set(times))
        for n, at in enumerate(times):
            assert before(at) == begins[n]
            assert before(at + 1) == begins[n + 1]
        with Connection.open(settings) as connection:
            files = connection.log_files()
            for wrong, message in (
                ("2020-01-01T00:00:00", "add its zone"),
                ("2020-01-32T00:00:00Z", "a time looks like"),
                ("2120-01-01T00:00:00Z", "in the future"),
            ):
                with pytest.raises(ConfigError, match=message):
                    start_of(connection, wrong)
            for long_ago in ("2020-01-01T00:00:00Z", "2020-01-01 00:00:00+01:00"):
                if not variables:
                    assert start_of(connection, long_ago)[0] == GtidSet(), "the log is known to be whole"
                    continue
                with pytest.raises(BinlogPurgedError, match="may be purged: begin at earliest"):
                    start_of(connection, long_ago)
        server.purge_log(files[2][0])
        with Connection.open(settings) as connection:
            earliest = start_of(connection, "earliest")[0]
        kept = next(n for n, begin in enumerate(begins) if earliest <= begin)
        assert 0 < kept < len(times) - 1
        assert before(times[kept] + 1) == begins[kept + 1]
        with pytest.raises(BinlogPurgedError, match="may be purged: begin at earliest"):
            before(times[kept])
