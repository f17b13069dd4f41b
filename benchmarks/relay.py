"""The relay: ``python -m benchmarks.relay [--parts delay,tables,in,out,stall,memory] [--minutes N] [--output FILE]``.

An event is a row; transactions have 5 rows. Server, relay, writer and consumers are processes of their own on this
machine, and share its cores. Consumers count events and take the time (``benchmarks/_consumers.py``).

- *delay*: a writer holds ``--rate`` events a second, 10 consumers wait for each; the delay is that between the commit
  time in an event and the moment when a consumer has it. Bounds: p50 ≤ 10 ms, p99 ≤ 50 ms.
- *tables*: as *delay*, but each transaction is of one of ``--tables`` tables, which the relay follows by a pattern, and
  all consumers ask for all of them by id. The same bounds.
- *in*: the relay reads ``--events`` that are in the log already; nobody listens. Compared with decoding the same log
  to Arrow in this process, on one core, which is only the first part of the work.
- *out*: then 1, 10 and 100 consumers read all that from the buffer, each from the oldest event on; events a second of
  all together, and the bytes, compared with one bare socket between two processes.
- *stall*: as *delay*, while one more consumer has asked for megabytes and reads nothing for ``--stall`` seconds: the
  same bounds for the others. Then it reads its answer, which has to be whole.
- *memory*: a small buffer, full all the time, 10 consumers and ``--rate`` events a second for ``--minutes``. The
  resident memory of the last quarter against that of the first one after the buffer was full. Bound: ≤ 1.05 times.

``cpu`` is the CPU time of the relay's process, in cores. Beside the delays stands how long a thread that works for 2 ms
in each 5 ms had to wait for a core meanwhile, p50 and p99: where that is not far below the bounds, others had the
cores, and the figures say little of the relay.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from pymysql.constants import CLIENT

from benchmarks._bench import DB, SCHEMA, Timing, _row, progress, report
from benchmarks._consumers import Consumed, Consumers
from benchmarks._load import Inserts, SteadyWriter, Updates
from headgate.catalog import TablePatterns
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.replication import DecodeOptions, LogBlock, LogRead, read_range
from headgate_testing import MySQLServer

ROWS = 100_000
PER_TRANSACTION = 5
CONSUMERS = 10
P50_MS, P99_MS = 10.0, 50.0
GROWTH = 1.05
WARM_SECONDS = 3.0
SMALL_BUFFER = 32 << 20
PATIENCE_SECONDS = 600.0
STALLED_BYTES = 8 << 20
_WORK_SECONDS = 0.002
ONE_TABLE = Updates(ROWS, PER_TRANSACTION)
PARTS = ("delay", "tables", "in", "out", "stall", "memory")


# --- what runs --------------------------------------------------------------------------------------------------------


class RelayProcess:
    """``headgate relay`` of the table, and what the system says of its process."""

    def __init__(self, mysql: MySQLServer, folder: Path, start: str, memory_bytes: int, table: str) -> None:
        self.mysql = mysql
        file = folder / "relay.toml"
        file.write_text(
            f'state = "state"\nmemory_bytes = {memory_bytes}\n[[physical]]\nid = 1\nname = "bench"\n'
            f'url = "{mysql.url}"\n'
            f'[[physical.sources]]\nid = 1\nname = "bench.Orders"\ntable = "{table}"\n'
        )
        command = [sys.executable, "-m", "headgate.cli", "relay", "-Y", str(file), "--port", "0", "--from", start]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip().rstrip("/")
        if not self.url:
            raise RuntimeError("the relay did not start")
        self.port = int(self.url.rpartition(":")[2])
        self._begun, self._cpu = time.monotonic(), self.cpu_seconds()

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/containerStats/inbound/events/total") as answer:
            counts: dict[str, Any] = json.load(answer)
            return counts

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def begin(self) -> None:
        """CPU time counts from here."""
        self._begun, self._cpu = time.monotonic(), self.cpu_seconds()

    @property
    def cores(self) -> float:
        return (self.cpu_seconds() - self._cpu) / (time.monotonic() - self._begun)

    @property
    def rss_mb(self) -> float:
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@contextlib.contextmanager
def relaying(
    mysql: MySQLServer, *, start: str = "current", memory_bytes: int = 1 << 30, table: str = f"{DB}.orders"
) -> Iterator[RelayProcess]:
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(RelayProcess(mysql, Path(folder), start, memory_bytes, table)) as relay,
    ):
        yield relay


def wait(until: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not until():
        if time.monotonic() > end:
            raise RuntimeError(f"waited too long for {what}")
        time.sleep(0.05)


def fill(mysql: MySQLServer, first: int, transactions: int) -> None:
    """Commit so many transactions of 5 inserts."""
    choice = random.Random(4)
    with mysql.connect(database=DB, autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS) as connection:
        cursor = connection.cursor()
        for begin in range(0, transactions, 100):
            statements = []
            for number in range(begin, min(begin + 100, transactions)):
                keys = range(first + number * PER_TRANSACTION, first + (number + 1) * PER_TRANSACTION)
                statements.append(f"INSERT INTO orders VALUES {','.join(_row(choice, key) for key in keys)}")
            cursor.execute(";".join(statements))
            while cursor.nextset():
                pass


# --- the parts --------------------------------------------------------------------------------------------------------


def lateness(seconds: float) -> str:
    """How long 2 ms of work, every 5 ms, wait for a core while that time passes."""
    waited = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.003)
        begun, cpu = time.monotonic(), time.thread_time()
        while time.thread_time() - cpu < _WORK_SECONDS:
            pass
        waited.append((time.monotonic() - begun - _WORK_SECONDS) * 1e3)
    return f"2 ms of work waited {np.percentile(waited, 50):.1f}/{np.percentile(waited, 99):.0f} ms for a core"


def delays(name: str, result: Consumed, relay: RelayProcess, late: str) -> list[dict[str, Any]]:
    if result.disorder or not len(result.delays_ms):
        raise RuntimeError(f"{result.disorder} events out of order, {len(result.delays_ms)} delays")
    p50, p99, worst = (float(np.percentile(result.delays_ms, q)) for q in (50, 99, 100))
    cores = relay.cores
    return [
        {
            "part": name, "what": what, "value": value, "bound": bound, "events_per_s": 0, "cpu": cores,
            "note": f"{len(result.events)} consumers, {len(result.delays_ms):,} delays, worst {worst:.0f} ms; {late}",
            "ok": "ok" if value <= bound else "MISSED",
        }
        for what, value, bound in (("p50 ms", p50, P50_MS), ("p99 ms", p99, P99_MS))
    ]  # fmt: skip


@contextlib.contextmanager
def writing(mysql: MySQLServer, rate: int, transactions: Updates | Inserts = ONE_TABLE) -> Iterator[SteadyWriter]:
    with SteadyWriter(mysql, transactions, rate // PER_TRANSACTION, group=2) as writer:
        yield writer


def kept(writer: SteadyWriter) -> float:
    """Events a second that the writer really wrote."""
    at = writer.commits.at_us
    return writer.commits.rate(int(at[0]), int(at[-1]) + 1) * PER_TRANSACTION


def measure_delay(mysql: MySQLServer, args: argparse.Namespace) -> list[dict[str, Any]]:
    progress(f"delay: {args.rate:,} events/s for {args.seconds} s")
    with relaying(mysql) as relay, writing(mysql, args.rate) as writer:
        wait(lambda: relay.stats()["numDataEvents"] > 0, "the first event")
        with Consumers(relay.port, CONSUMERS, warm=WARM_SECONDS) as consumers:
            relay.begin()
            late = lateness(WARM_SECONDS + args.seconds)
            result = consumers.stop()
            rows = delays("delay", result, relay, late)
    return [{**row, "events_per_s": int(kept(writer))} for row in rows]


def measure_tables(mysql: MySQLServer, args: argparse.Namespace) -> list[dict[str, Any]]:
    progress(f"tables: {args.rate:,} events/s of {args.tables:,} tables for {args.seconds} s")
    columns = "id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT"
    mysql.execute("CREATE DATABASE many", *(f"CREATE TABLE many.t{n} ({columns})" for n in range(args.tables)))
    transactions = Inserts("many.t", args.tables, PER_TRANSACTION)
    with relaying(mysql, table="many.*") as relay, writing(mysql, args.rate, transactions) as writer:
        wait(lambda: relay.stats()["numDataEvents"] > args.tables * PER_TRANSACTION, "the first events")
        sources = ",".join(str(1 + n) for n in range(args.tables))
        with Consumers(relay.port, CONSUMERS, sources=sources, warm=WARM_SECONDS) as consumers:
            relay.begin()
            late = lateness(WARM_SECONDS + args.seconds)
            result = consumers.stop()
        rows = delays("tables", result, relay, late)
    return [{**row, "events_per_s": int(kept(writer))} for row in rows]


def measure_stall(mysql: MySQLServer, args: argparse.Namespace) -> list[dict[str, Any]]:
    progress(f"stall: a consumer that reads nothing for {args.stall} s")
    with relaying(mysql, memory_bytes=SMALL_BUFFER) as relay, writing(mysql, args.rate) as writer:
        wait(lambda: relay.stats()["sizeDataEvents"] > SMALL_BUFFER, "a full buffer")
        with socket.socket() as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.connect(("127.0.0.1", relay.port))
            target = f"/stream?sources=1&size={STALLED_BYTES}&output=binary"
            stalled.sendall(f"GET {target} HTTP/1.0\r\n\r\n".encode())  # the answer has a length, and no chunks
            with Consumers(relay.port, CONSUMERS, warm=WARM_SECONDS) as consumers:
                relay.begin()
                late = lateness(WARM_SECONDS + args.stall)
                result = consumers.stop()
            rows = delays("stall", result, relay, late)
            stalled.settimeout(60)
            whole = len(_rest(stalled))
    if whole < STALLED_BYTES // 2:
        raise RuntimeError(f"the stalled consumer had {whole} bytes of its answer")
    return [{**row, "events_per_s": int(kept(writer))} for row in rows]


def _rest(connection: socket.socket) -> bytes:
    """The body of an answer; it is whole, or this raises."""
    data = bytearray()
    while piece := connection.recv(1 << 20):
        data += piece
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    length = int(next(x for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")).partition(b":")[2])
    if len(body) != length:
        raise RuntimeError(f"{len(body)} of {length} bytes came")
    return body


def measure_throughput(mysql: MySQLServer, args: argparse.Namespace, parts: set[str]) -> list[dict[str, Any]]:
    progress(f"in: committing {args.events:,} events")
    start = mysql.gtid_executed
    fill(mysql, 10 * ROWS, args.events // PER_TRANSACTION)
    end = mysql.gtid_executed
    results = []
    plain = decode_rate(mysql, start, end)
    with relaying(mysql, start=start) as relay:
        begun = time.monotonic()
        wait(lambda: relay.stats()["numDataEvents"] >= args.events, "all events")
        seconds = time.monotonic() - begun
        size = relay.stats()["sizeDataEvents"]
        results.append(
            {
                "part": "in", "what": "of decoding alone", "value": args.events / seconds / plain, "bound": "-",
                "events_per_s": int(args.events / seconds), "cpu": relay.cores,
                "note": f"{size / args.events:.0f} bytes an event; decoding alone {int(plain):,} events/s", "ok": "-",
            }
        )  # fmt: skip
        if "out" in parts:
            bare = bare_socket()
            results += [measure_out(relay, args, count, bare) for count in (1, 10, 100)]
    return results


def decode_rate(mysql: MySQLServer, start: str, end: str) -> float:
    """Events a second of decoding the same log to Arrow, on one core."""
    had, executed = GtidSet.parse(start), GtidSet.parse(end)
    settings = ConnectionSettings.from_url(f"{mysql.url}/?tls=disabled")

    def decode() -> int:
        items = read_range(
            LogRead(settings, wanted=executed - had, executed=executed),
            DecodeOptions(TablePatterns([f"{DB}.orders"]), epoch=1, images="keys"),
        )
        return sum(image.batch.num_rows for item in items if isinstance(item, LogBlock) for image in item.images)

    decode()
    timing = Timing(decode)
    return float(timing.result / timing.wall_seconds)


def measure_out(relay: RelayProcess, args: argparse.Namespace, count: int, bare: float) -> dict[str, Any]:
    progress(f"out: {count} consumers")
    each = args.events if count < 100 else args.events // 4
    with Consumers(relay.port, count, since="oldest", until=each) as consumers:
        relay.begin()
        result = consumers.result()
        cores = relay.cores
    if result.disorder:
        raise RuntimeError(f"{result.disorder} events out of order")
    return {
        "part": "out", "what": f"{count} consumers, of a bare socket", "value": result.bytes / result.seconds / bare,
        "bound": "-", "events_per_s": int(sum(result.events) / result.seconds), "cpu": cores,
        "note": f"{result.bytes / result.seconds / 1e6:,.0f} MB/s; {int(min(result.events) / result.seconds):,} "
        f"events/s to each; consumers took {result.cpu_seconds / result.seconds:.2f} cores", "ok": "-",
    }  # fmt: skip


def bare_socket() -> float:
    """Bytes a second that one process sends and another one reads, a mebibyte at a time."""
    total = 4 << 30
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = multiprocessing.get_context("spawn").Process(
            target=_send, args=(listening.getsockname()[1], total), daemon=True
        )
        sender.start()
        connection, _ = listening.accept()
        with connection:
            buffer = bytearray(1 << 20)
            begun, received = time.monotonic(), 0
            while piece := connection.recv_into(buffer):
                received += piece
            seconds = time.monotonic() - begun
        sender.join()
    return received / seconds


def _send(port: int, total: int) -> None:
    piece = bytes(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(total // len(piece)):
            connection.sendall(piece)


def measure_memory(mysql: MySQLServer, args: argparse.Namespace) -> list[dict[str, Any]]:
    progress(f"memory: {args.minutes} minutes at a full buffer")
    seen: list[float] = []
    with relaying(mysql, memory_bytes=SMALL_BUFFER) as relay:
        with writing(mysql, args.rate) as writer:
            wait(lambda: relay.stats()["sizeDataEvents"] > SMALL_BUFFER, "a full buffer")
            with Consumers(relay.port, CONSUMERS, warm=1e9) as consumers:
                relay.begin()
                end = time.monotonic() + args.minutes * 60
                while time.monotonic() < end:
                    time.sleep(1)
                    seen.append(relay.rss_mb)
                result = consumers.stop()
                cores = relay.cores
        rate, times = kept(writer), relay.stats()["sizeDataEvents"] / SMALL_BUFFER
    quarter = max(1, len(seen) // 4)
    first, last = median(seen[:quarter]), median(seen[-quarter:])
    if result.disorder:
        raise RuntimeError(f"{result.disorder} events out of order")
    return [
        {
            "part": "memory", "what": "last quarter / first", "value": last / first, "bound": GROWTH,
            "events_per_s": int(rate), "cpu": cores,
            "note": f"{args.minutes} min, {first:.0f} → {last:.0f} MB, most {max(seen):.0f}; the buffer filled "
            f"{times:.1f} times", "ok": "ok" if last / first <= GROWTH else "MISSED",
        }
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rate", type=int, default=5000, help="events a second (delay, tables, stall, memory)")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20, help="how long the delay is measured")
    parser.add_argument("--events", type=int, default=500_000, help="events in the log (in, out)")
    parser.add_argument("--stall", type=float, default=120, help="seconds that the stalled consumer reads nothing")
    parser.add_argument("--minutes", type=float, default=30, help="of the memory's part")
    parser.add_argument("--output")
    args = parser.parse_args()
    parts = set(args.parts.split(","))
    if not parts <= set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(parts - set(PARTS)))}; there are {', '.join(PARTS)}")
    flags = {"innodb_buffer_pool_size": 512 << 20, "innodb_flush_log_at_trx_commit": 0, "sync_binlog": 0}
    results: list[dict[str, Any]] = []
    with MySQLServer.start(flags=flags) as mysql:
        mysql.execute(f"CREATE DATABASE {DB}", f"CREATE TABLE {DB}.orders ({SCHEMA})")
        fill(mysql, 0, ROWS // PER_TRANSACTION)
        if "delay" in parts:
            results += measure_delay(mysql, args)
        if "tables" in parts:
            results += measure_tables(mysql, args)
        if parts & {"in", "out"}:
            results += measure_throughput(mysql, args, parts)
        if "stall" in parts:
            results += measure_stall(mysql, args)
        if "memory" in parts:
            results += measure_memory(mysql, args)
    return report("relay", results, output=args.output)


if __name__ == "__main__":
    sys.exit(main())
