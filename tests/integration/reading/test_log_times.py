"""Beginning at a time: the transactions before it are exactly those in front of the first one that counts."""

from __future__ import annotations

import pytest

from headgate.errors import BinlogPurgedError, ConfigError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings
from headgate.replication import LogRead, gtids_before, start_of, transaction_headers
from headgate_testing import MySQLServer


@pytest.mark.needs_own_server
def test_every_moment_of_a_log_in_several_files() -> None:
    with MySQLServer.start() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        for n in range(12):
            if n % 3 == 0:
                server.execute("FLUSH BINARY LOGS")
            if n == 6:
                server.execute("FLUSH BINARY LOGS")  # a file without a transaction
            server.execute(f"INSERT INTO d.t VALUES ({n})")
        settings = ConnectionSettings.from_url(server.url)
        uuid = server.server_uuid
        executed = GtidSet.parse(server.gtid_executed)
        times = [one.commit_us for one in transaction_headers(LogRead(settings, wanted=executed))]
        assert times == sorted(set(times))
        assert not gtids_before(settings, times[0])
        for had, at in enumerate(times):
            for moment, count in ((at, had), (at + 1, had + 1)):
                gtids = gtids_before(settings, moment)
                assert gtids == GtidSet.parse(f"{uuid}:1-{count}" if count else ""), (had, moment - at)
        with Connection.open(settings) as connection:
            assert start_of(connection, "2020-01-01T00:00:00Z")[0] == GtidSet()
            assert start_of(connection, "2020-01-01 00:00:00+01:00")[0] == GtidSet()
            for wrong, message in (
                ("2020-01-01T00:00:00", "add its zone"),
                ("2020-01-32T00:00:00Z", "a time looks like"),
                ("2120-01-01T00:00:00Z", "in the future"),
            ):
                with pytest.raises(ConfigError, match=message):
                    start_of(connection, wrong)
            files = [str(row[0]) for row in connection.query("SHOW BINARY LOGS")]
        server.purge_log(files[2])
        kept = next(n for n, at in enumerate(times) if gtids_is_kept(settings, at))
        assert 0 < kept < len(times) - 1
        assert gtids_before(settings, times[kept] + 1) == GtidSet.parse(f"{uuid}:1-{kept + 1}")
        with pytest.raises(BinlogPurgedError, match="may be purged: begin at earliest"):
            gtids_before(settings, times[kept])


def gtids_is_kept(settings: ConnectionSettings, at: int) -> bool:
    """Whether the log still has the transaction of this time."""
    try:
        gtids_before(settings, at + 1)
    except BinlogPurgedError:
        return False
    return True
