"""Tables whose read was stopped or replaced before a batch named them: the lake must not take them for complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.control import parse_signal, submit
from headgate_testing import MySQLServer
from tests.integration.streams import Stream, make_tables


@pytest.mark.parametrize(
    ("options", "signal"),
    [({}, {"type": "stop-snapshot"}), ({"snapshot_mode": "no_data"}, {"type": "execute-snapshot"})],
    ids=["stopped before the first batch", "requested while it waits"],
)
def test_a_table_that_was_never_read_is_not_live(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, options: dict[str, Any], signal: dict[str, Any]
) -> None:
    make_tables(mysql_server, mysql_db)
    stream = Stream(mysql_server, mysql_db, tmp_path, **options)
    name = f"{mysql_db}.changes"
    submit(stream.inbox, parse_signal({"type": "pause-snapshot"}))
    submit(stream.inbox, parse_signal({**signal, "data": {"data-collections": [name]}}))
    stream.do("UPDATE changes SET v = 'new' WHERE id = 1")
    assert stream.batch()
    assert stream.states[name].state == "snapshotting"
