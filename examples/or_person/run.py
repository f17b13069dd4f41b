"""The example of the article "Databus for MySQL": a relay for the table or_test.person, and what curl says.

    scripts/relay-example [--port 11115] [--keep]

A private MySQL server gets the database ``or_test`` with nine persons. A relay reads Databus's own two files (only the
port in the ``uri`` is the private server's) and follows the table from then on. One UPDATE later it has one event, by
the Avro schema in ``conf/schemas_registry``: its ``birthDate`` is a long, as consumers that were written for the
article expect it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from headgate_testing import MySQLServer

HERE = Path(__file__).parent
DEADLINE_SECONDS = 120


def say(text: str) -> None:
    print(text, flush=True)


def create_person(server: MySQLServer) -> None:
    server.execute(
        "CREATE DATABASE or_test",
        "CREATE USER or_test@'%' IDENTIFIED BY 'or_test'",
        "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO or_test@'%'",
    )
    with server.connect(database="or_test") as connection, connection.cursor() as cursor:
        for statement in (HERE / "create_person.sql").read_text("utf-8").split(";"):
            if statement.strip():
                cursor.execute(statement)


def sources_for(server: MySQLServer, folder: Path) -> Path:
    """The example's file with the private server's port in it."""
    value = json.loads((HERE / "conf" / "sources-or-person.json").read_text("utf-8"))
    value["uri"] = value["uri"].replace("@localhost:33066/", f"@127.0.0.1:{server.url.rpartition(':')[2]}/")
    file = folder / "sources-or-person.json"
    file.write_text(json.dumps(value, indent=4), "utf-8")
    return file


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def first_line(url: str, word: str) -> str:
    """What ``curl -s URL | grep -m1 WORD`` prints."""
    return next(line for line in get(url).splitlines() if word in line)


def show(base: str, server: MySQLServer) -> None:
    say(f"$ curl -s {base}sources")
    say(get(f"{base}sources"))
    update = "UPDATE person SET first_name='John' WHERE id=1"
    say(f"mysql> {update};")
    with server.connect(database="or_test") as connection, connection.cursor() as cursor:
        cursor.execute(update)
    total = f"{base}containerStats/inbound/events/total?pretty"
    end = time.monotonic() + DEADLINE_SECONDS
    while '"numDataEvents" : 1,' not in get(total) and time.monotonic() < end:
        time.sleep(0.05)
    say(f"$ curl -s '{total}' | grep -m1 numDataEvents")
    say(first_line(total, "numDataEvents"))
    stream = f"{base}stream?sources=40&size=100000&output=json"
    say(f"$ curl -s '{stream}'")
    say(get(stream))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, help="the relay's port; by default 11115, 0: any that is free")
    parser.add_argument("--keep", action="store_true", help="let the relay run until Ctrl-C")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate-relay-") as folder, MySQLServer.start() as server:
        create_person(server)
        shutil.copytree(HERE / "conf" / "schemas_registry", Path(folder) / "schemas_registry")  # the relay adds to it
        command = [
            sys.executable, "-m", "headgate.cli", "relay", "--sources", str(sources_for(server, Path(folder))),
            "--properties", str(HERE / "conf" / "relay_or_person.properties"),
        ]  # fmt: skip
        if arguments.port is not None:
            command += ["--port", str(arguments.port)]
        relay = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=os.environ)
        with relay:
            assert relay.stdout is not None
            base = relay.stdout.readline().strip()
            try:
                if not base:
                    raise SystemExit("the relay did not start")
                show(base, server)
                if arguments.keep:
                    say(f"{base} answers until Ctrl-C; the server is {server.url}")
                    relay.wait()
            except KeyboardInterrupt:
                pass
            finally:
                relay.send_signal(signal.SIGTERM)


if __name__ == "__main__":
    main()
