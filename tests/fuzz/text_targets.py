"""Decoders of texts: GTID sets, statements, Delta's log, signals, configuration, offsets, the relay's requests."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.mutations import mutate, mutate_text
from tests.fuzz.targets import Place, Target, target

_SID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def _texts(corpus: Sequence[str], rng: random.Random) -> bytes:
    """Make a case of a text; as some clients do, sometimes not in UTF-8."""
    text = mutate_text(rng, rng.choice(corpus), corpus)
    return text.encode("utf-8", "surrogatepass")


def _text(case: bytes) -> str:
    return case.decode("utf-8", "replace")


@target
def gtid_texts() -> Target:
    """GTID sets and positions in text form."""
    from headgate.gtid import Gtid, GtidSet
    from headgate.positions import parse_start

    corpus = (
        "",
        f"{_SID}:1-5",
        f"{_SID}:1-5:9:tag:1-2,\n{_SID}:100",
        "binlog.000001:4",
        "2024-05-06T07:08:09Z",
        "earliest",
    )

    def run(case: bytes, _place: Place) -> object:
        return [_or_error(parse, _text(case)) for parse in (GtidSet.parse, Gtid.parse, parse_start)]

    return Target(lambda rng: _texts(corpus, rng), run)


def _or_error(call: Any, *arguments: Any) -> str:
    from headgate.errors import HeadgateError

    try:
        return repr(call(*arguments))
    except HeadgateError as error:
        return f"{type(error).__name__}: {error}"


@target
def statements() -> Target:
    """SQL statements of the log, and defaults, options and row expressions in them."""
    from headgate.catalog import declares_cascade, parse_statement

    corpus = (
        "CREATE TABLE `d`.`t` (a INT NOT NULL DEFAULT '5' COMMENT 'x', b VARCHAR(20) CHARACTER SET latin1, KEY (a))",
        "CREATE TABLE IF NOT EXISTS t SELECT * FROM u", "CREATE TABLE t LIKE u", "DROP TABLE a, `b``c`, d.e /* x */",
        "ALTER TABLE t ADD COLUMN (c INT DEFAULT (1+2), d DECIMAL(10,2) UNSIGNED) FIRST, DROP e, ALGORITHM=INSTANT",
        "ALTER TABLE t MODIFY a BIGINT UNSIGNED NOT NULL AFTER b, CHANGE `x y` z ENUM('a','b''c') CHARSET utf8mb4",
        "ALTER TABLE t RENAME COLUMN a TO b, RENAME TO x.u, CONVERT TO CHARACTER SET utf8mb4",
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE x.u WITHOUT VALIDATION", "TRUNCATE TABLE /*!80030 t */",
        "RENAME TABLE a TO b, c TO d.e", "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES u (b) ON DELETE CASCADE",
        "XA START X'61',X'',1", "SET PASSWORD FOR a = 'x'", "INSERT INTO t VALUES (1)",
        "CREATE DEFINER=a VIEW v AS SELECT 1",
        "ALTER TABLE t ADD c INT GENERATED ALWAYS AS (a + 1) STORED, ADD d TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3)",
    )  # fmt: skip

    def run(case: bytes, _place: Place) -> object:
        text, out = _text(case), []
        for quotes in (False, True):
            modes = {"ansi_quotes": quotes, "backslash_escapes": not quotes, "strict": quotes, "no_break_space": quotes}
            out.append(repr(parse_statement(text, "d", lower_case_names=quotes, **modes)))
            out.append(repr(declares_cascade(text)))
        return out

    return Target(lambda rng: _texts(corpus, rng), run)


@target
def expressions() -> Target:
    """Row expressions of the configuration."""
    from headgate.columns import parse_expression

    corpus = (
        "a = 5 AND b > 'x' OR NOT (c IS NULL)",
        "a IN (1, 2, 'x')",
        "d BETWEEN 1 AND 2.5",
        "`a b` LIKE 'x%' ",
        "a <> -1e5",
    )

    def run(case: bytes, _place: Place) -> object:
        return repr(parse_expression(_text(case)))

    return Target(lambda rng: _texts(corpus, rng), run, (ValueError,))


@target
def signals() -> Target:
    """Signals, as any channel brings them, and what a planner makes of them."""
    from headgate.carrier import parse_request
    from headgate.control import inbox_files, parse_signal, signal_file
    from headgate.parsing import parse_json

    def one(kind: str, **data: Any) -> str:
        return json.dumps({"id": "a1", "type": kind, "data": data})

    corpus = (
        one("execute-snapshot", **{"data-collections": [r"shop\.orders", "a.*"], "type": "incremental",
            "additional-conditions": [{"data-collection": "a.b", "filter": "x = 'y' AND (a > 1)"}]}),
        one("execute-snapshot", **{"data-collections": [r"d\.t"], "type": "BLOCKING", "additional-conditions": [
            {"data-collection": r"d\.t", "filter": "SELECT * FROM d.t WHERE a = 1"}], "surrogate-key": "k"}),
        one("stop-snapshot", **{"data-collections": ["a"]}), one("pause-snapshot"), one("resume-snapshot"),
        one("log", message="x"), '{"type":"redo","table":"a.b","chunk":{}}', one("schema-changes"),
    )  # fmt: skip

    row = {"gtid": None, "seq": [1, 4, 0], "ts_us": 1}

    def run(case: bytes, _place: Place) -> object:
        out = [
            _or_error(_parsed_signal, parse_signal, signal_file, _text(case)),
            _or_error(_parsed_signal, parse_signal, signal_file, case),
        ]
        try:
            value = parse_json(case)
        except ValueError as error:
            if type(error) not in (ValueError, json.JSONDecodeError, UnicodeDecodeError):
                raise
            return out
        if isinstance(value, dict):
            out += [
                _or_error(inbox_files, [{"id": None, "type": None, "data": None, **value, **row}]),
                _or_error(parse_request, value),
            ]
        return out

    return Target(lambda rng: mutate(rng, _texts(corpus, rng)) if rng.random() < 0.2 else _texts(corpus, rng), run)


def _parsed_signal(parse_signal: Any, signal_file: Any, text: str | bytes) -> object:
    signal = parse_signal(text, name="n")
    signal_file(signal.id).encode()
    return signal.to_dict(), signal.names("shop.orders"), signal.filter_of("a.b"), signal.unmatched(["d.t"])


@target
def configuration() -> Target:
    """Pipeline files."""
    from headgate.config import parse_config

    examples = Path(__file__).parents[2] / "examples"
    corpus = [file.read_text() for file in sorted(examples.rglob("*.toml"))]
    corpus.append(
        'name = "shop"\n[source]\nurl = "mysql://headgate@127.0.0.1:3306"\ntables = ["shop.*", "!shop.tmp_*"]\n'
        '[target]\npath = "./lake"\nmode = ["current", "changelog"]\n[spark]\n"spark.master" = "local[2]"\n'
        '[tables."shop.orders"]\nkey = ["a"]\nrows = "a > 5"\n[columns]\nexclude = ["shop.a.b"]\n'
        '[schema_changes]\nadd_column = "apply"\n[signals]\n[ui]\nport = 4050\n'
    )

    def run(case: bytes, _place: Place) -> object:
        return str(type(parse_config(_text(case), folder=Path("/tmp"))))

    return Target(lambda rng: _texts(corpus, rng), run)


@target
def offsets() -> Target:
    """Stored positions: of a stream, a chunk, a relay's consumer."""
    from headgate.offsets import ChunkSpec, SourceOffset
    from headgate.relay.databus import bootstrap_of, parse_position

    corpus = (
        '{"windowScn":5,"windowOffset":-1,"consumption_mode":"ONLINE_CONSUMPTION","prevScn":-1}',
        '{"consumption_mode":"BOOTSTRAP_SNAPSHOT","bootstrap_since_scn":0,"bootstrap_start_scn":5,"snapshot_source":"a"}',
        '{"v":1,"gtid":"' + _SID + ':1-5","hint":{"file":"binlog.000001","pos":4},"last":null}',
        '{"table":"a.b","from":["1"],"to":null,"number":3}',
    )  # fmt: skip

    def run(case: bytes, _place: Place) -> object:
        text = _text(case)
        out = [_or_error(SourceOffset.from_json, text), _or_error(ChunkSpec.from_json, text)]
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return out
        for parse in (parse_position, bootstrap_of):
            if isinstance(value, dict):
                try:
                    out.append(repr(parse(value)))
                except ValueError as error:
                    out.append(str(error))
        return out

    return Target(lambda rng: _texts(corpus, rng), run)


@target
def delta_logs() -> Target:
    """Commits of a Delta table from any writer: what a snapshot of it and its files' properties are."""
    import pyarrow as pa

    from headgate.delta import checkpointed_version, snapshot_at, unsupported_requirements
    from headgate.delta.vectors import read_vector, vector_file

    schema = json.dumps({"type": "struct", "fields": [
        {"name": "id", "type": "long", "nullable": True,
         "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"}},
        {"name": "s", "nullable": True, "metadata": {}, "type": {"type": "struct", "fields": [
            {"name": "x", "type": "string", "nullable": True, "metadata": {}}]}},
    ]})  # fmt: skip
    stats = json.dumps(
        {"numRecords": 5, "minValues": {"id": 1}, "maxValues": {"id": 9}, "nullCount": {"id": 0}, "tightBounds": True}
    )
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    commits = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                      "writerFeatures": ["deletionVectors"]}},
        {"metaData": {"id": "x", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                      "partitionColumns": [], "configuration": {"delta.columnMapping.mode": "name"}}},
        {"add": {"path": "part%20a.parquet", "size": 10, "partitionValues": {}, "modificationTime": 5,
                 "dataChange": True, "stats": stats, "deletionVector": vector}},
        {"remove": {"path": "b.parquet", "deletionTimestamp": 5, "dataChange": True}},
        {"txn": {"appId": "a", "version": 5}}, {"commitInfo": {"operation": "WRITE"}},
        {"domainMetadata": {"domain": "x", "configuration": "{}"}},
    ]  # fmt: skip
    lines = [json.dumps(one) for one in commits]
    folder = Path(tempfile.mkdtemp(prefix="fuzz-delta-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    (folder / "_delta_log").mkdir()
    import atexit

    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    def make(rng: random.Random) -> bytes:
        chosen = list(lines)
        at = rng.randrange(len(chosen))
        which = rng.random()
        if which < 0.6:
            chosen[at] = json.dumps(_other_value(rng, json.loads(chosen[at])))
        else:
            chosen[at] = mutate_text(rng, chosen[at], lines)
        return "\n".join(chosen).encode("utf-8", "surrogatepass")

    def run(case: bytes, _place: Place) -> object:
        path = str(folder)
        (folder / "_delta_log" / f"{0:020}.json").write_bytes(case)
        (folder / "_delta_log" / "_last_checkpoint").write_bytes(case[:60])
        snapshot = snapshot_at(path, 0)
        out = [str(snapshot.features), str(snapshot.reader_features), str(snapshot.names), snapshot.schema_json,
               repr(dict(snapshot.properties)), str(unsupported_requirements(snapshot)),
               str(checkpointed_version(path))]  # fmt: skip
        for file in snapshot.files.values():
            out += [
                file.path,
                file.name,
                str(file.size),
                str(file.deleted),
                str(file.statistics),
                str(file.is_whole("id")),
            ]
            out += [
                str(file.bounds(("id",), kind)) for kind in (pa.int64(), pa.string(), pa.date32(), pa.timestamp("us"))
            ]
            out.append(_or_error(lambda one=file: list(read_vector(path, one.vector))))
            if file.vector is not None:
                out.append(_or_error(vector_file, file.vector))
            file.removal(data_change=True)
        return out

    return Target(make, run, (FileNotFoundError,))


def _other_value(rng: random.Random, value: Any) -> Any:
    """Return the JSON value with another value, or nothing, somewhere in it."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {one: inner for one, inner in value.items() if one != key}
        return {**value, key: _other_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.6:
        at = rng.randrange(len(value))
        return [*value[:at], _other_value(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, str) and value and rng.random() < 0.5:
        return mutate_text(rng, value)
    return rng.choice(
        (None, True, 0, -1, 2**63, 2**70, 1.5, "", "x", "5", [], [1], {}, {"a": 1}, float("inf"), "é" * 50)
    )


@target
def relay_requests() -> Target:
    """Requests to a relay: query, path, headers and body through its application."""
    from headgate.gtid import GtidSet
    from headgate.relay.server import Relay, RelayConfig, create_app
    from tests.relay.server.serving import PERSON, PET, physical

    relay = Relay(RelayConfig(physical=(physical(1, "person", PERSON, PET),)), lambda _: GtidSet())
    app = create_app(relay)
    filters = {"40": {"partitionType": "MOD", "filters": [{"numBuckets": 4, "bktRange": {"start": 0, "end": 1}}]},
               "41": {"partitionType": "NONE", "where": ["and", [">", "owner", 10], ["in", "name", ["a"]]],
                      "columns": ["name"]}}  # fmt: skip
    corpus = [
        "GET /sources?v=2", "GET /register?sources=40,41&protocolVersion=4&compress=true",
        "GET /bufferInfo/inbound/person/1",
        'GET /stream?sources=40,41&size=1000&output=json&checkPoint={"windowScn":-1,"windowOffset":-1}&filters='
        + json.dumps(filters),
        'GET /stream?subs=[{"physicalSource":{"uri":"x"},"logicalPartition":{"source":{"id":40}}}]&checkPointMult={}',
        'GET /stream?output=json&size=10&checkPointMult={"pSources":[]}',
        "GET /containerStats/outbound/events/total", "GET /metrics", "GET /help?pretty", "GET /position", "GET /status",
        'GET /bootstrap?sources=40&batchSize=100&checkPoint={"consumption_mode":"BOOTSTRAP_SNAPSHOT"}',
        "GET /startSCN?checkPoint={}",
        'POST /groups/a\n{"member":"m","partitions":4,"sources":[],"done":{"0":{"checkpoint":{"windowScn":5}}}}',
        "GET /log?from=binlog.000001:4", "GET /physicalSources", "GET /log/stream?position=1", "GET /clients/a?x=1",
    ]  # fmt: skip

    def run(case: bytes, _place: Place) -> object:
        head, _, body = case.partition(b"\n")
        method, _, rest = head.partition(b" ")
        path, _, query = rest.partition(b"?")
        return asyncio.run(_answer(app, method, path, query, body))

    return Target(lambda rng: _texts(corpus, rng), run)


async def _answer(app: Any, method: bytes, path: bytes, query: bytes, body: bytes) -> object:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    verb = method.decode("latin-1").upper()
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": verb if verb.isalpha() else "GET",
        "scheme": "http", "path": path.decode("utf-8", "replace") or "/", "raw_path": path, "query_string": query,
        "root_path": "", "headers": [(b"host", b"127.0.0.1:1"), (b"x-test", query[:50].replace(b"\n", b""))],
        "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 1),
    }  # fmt: skip
    async with asyncio.timeout(1):
        await app(scope, receive, send)
    return [one.get("status") for one in sent[:1]]
