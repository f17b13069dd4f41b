"""The example of the article "Databus for MySQL" works, and prints what the article prints."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import fastavro
import pytest

from headgate.relay.databus import Schema

ROOT = Path(__file__).parents[3]
PERSON = ROOT / "examples/or_person/conf/schemas_registry/com.linkedin.events.example.or_test.Person.1.avsc"
BORN_MS = (dt.date(1815, 12, 10) - dt.date(1970, 1, 1)) // dt.timedelta(milliseconds=1)


@pytest.mark.long
@pytest.mark.needs_own_server
def test_the_articles_example() -> None:
    run = subprocess.run(
        [sys.executable, "examples/or_person/run.py", "--port", "0"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False,
        timeout=580,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    base = lines[0].split()[-1].removesuffix("sources")
    # The server's nine rows were there before the relay, which begins at the log's end.
    assert lines[:5] == [
        f"$ curl -s {base}sources",
        '[{"name":"com.linkedin.events.example.or_test.Person","id":40}]',
        "mysql> UPDATE person SET first_name='John' WHERE id=1;",
        f"$ curl -s '{base}containerStats/inbound/events/total?pretty' | grep -m1 numDataEvents",
        '  "numDataEvents" : 1,',
    ]
    event, end = (json.loads(line) for line in lines[6:8])
    assert (event["opcode"], event["key"], event["srcId"], event["physicalPartitionId"]) == ("UPSERT", 1, 40, 1)
    assert end["endOfPeriod"] is True
    # By the schema of the example, whose consumer casts the date to long.
    schema = json.loads(PERSON.read_text("utf-8"))
    assert event["schemaId"] == base64.b64encode(Schema("", 1, "", schema).digest).decode()
    row = fastavro.schemaless_reader(io.BytesIO(base64.b64decode(event["value"])), fastavro.parse_schema(schema), None)
    assert row == {"id": 1, "firstName": "John", "lastName": "Lovelace", "birthDate": BORN_MS, "deleted": "false"}
