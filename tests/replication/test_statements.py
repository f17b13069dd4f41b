"""Changes logged as statements, out of made-up logs: which are passed over, and what is said of the others."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence

import pytest

from headgate.binlog import codes
from headgate.catalog import TablePatterns
from headgate.errors import DecodeError, UnsupportedError
from headgate.gtid import GtidSet
from headgate.replication import Ddl, DecodeOptions, LogBlock, LogDecoder
from headgate_testing._binlog import packed
from tests.replication.written import UUID, WrittenLog

WANTED = GtidSet.parse(f"{UUID}:1-100")
FOLLOWED = ["shop.*", "!shop.tmp", "*.orders", "!logs.*"]


class Log(WrittenLog):
    """Statements of any database, and rows of ``t``."""

    def statement(self, text: str, databases: Sequence[str] | int | None, *, db: str = "", load: bool = False) -> int:
        """Returns where it begins."""
        pos = self.writer.pos
        self.events.append(self.writer.query(text, db, databases=databases, load_data=load))
        return pos

    def row(self, value: int, db: str = "shop") -> None:
        """A row of a table with one column, ``id TINYINT``."""
        names = bytes([4]) + packed(3) + packed(2) + b"id"
        self.events.append(self.writer.table_map(1, db, "t", [codes.T_TINY], b"", optional=names))
        self.events.append(self.writer.rows(codes.WRITE_ROWS, 1, 1, bytes([0, value])))

    def read(self, patterns: Sequence[str] = FOLLOWED, wanted: GtidSet = WANTED) -> tuple[list[object], LogDecoder]:
        decoder = LogDecoder(wanted, DecodeOptions(TablePatterns(patterns)))
        return list(self._items(decoder)), decoder

    def _items(self, decoder: LogDecoder) -> Iterator[object]:
        for item in self.decoded(decoder):
            if isinstance(item, Ddl):
                yield f"{item.action} {item.db}.{item.table}"
            elif isinstance(item, LogBlock):
                for image in item.images:
                    yield from image.batch.column(len(image.batch.columns) - 1).to_pylist()


@pytest.mark.parametrize(
    ("databases", "passed"),
    [
        (["logs"], True),
        (["logs", "mysql"], True),
        (["shop"], False),
        (["logs", "shop"], False),
        (["other"], False),  # other.orders would be followed
        (254, False),
        (None, False),
        (["", "logs"], False),
    ],
)
@pytest.mark.parametrize("load", [False, True])
def test_a_change_is_passed_over_where_all_its_databases_are_named_and_none_is_followed(
    databases: list[str] | int | None, passed: bool, load: bool
) -> None:
    log = Log()
    log.begin()
    log.row(1)
    log.events.append(log.writer.file_piece(codes.BEGIN_LOAD_QUERY, b"1\n2\n"))
    log.events.append(log.writer.file_piece(codes.APPEND_BLOCK, b"3\n"))
    pos = log.statement("INSERT INTO\n  t\tVALUES (1)", databases, db="logs", load=load)
    log.events.append(log.writer.file_piece(codes.DELETE_FILE))
    log.row(2)
    log.end()
    if passed:
        rows, decoder = log.read()
        assert rows == [1, 2]
        assert decoder.received() == GtidSet.parse(f"{UUID}:1")
        return
    with pytest.raises(UnsupportedError, match="a change as a statement") as caught:
        log.read()
    error: UnsupportedError = pickle.loads(pickle.dumps(caught.value))
    assert (error.gtid, error.file, error.pos) == (f"{UUID}:1", "binlog.000001", pos)
    assert error.statement == "INSERT INTO t VALUES (1)"
    assert "session 1 had binlog_format=STATEMENT or MIXED, default database logs" in error.message
    assert "\n" not in str(error)


def test_what_the_error_says_of_the_databases() -> None:
    descriptions = []
    for databases in (["shop"], ["b", "shop", "a"], 254):
        log = Log()
        log.begin()
        log.statement("DELETE FROM t WHERE note = '" + "x" * 1000 + "'", databases)
        with pytest.raises(UnsupportedError) as caught:
            log.read()
        assert len(caught.value.statement) == 300
        descriptions.append(caught.value.message.partition("(")[2].partition(")")[0])
    assert descriptions == [
        "a change in database shop",
        "a change in databases a, b, shop",
        "a change in databases that the log does not name",
    ]


@pytest.mark.parametrize(
    ("databases", "passes"), [(["logs"], True), (["logs", "shop"], False), (None, False), (254, False), ([""], False)]
)
def test_an_unreadable_statement_ends_only_streams_that_it_may_concern(
    databases: list[str] | int | None, passes: bool
) -> None:
    log = Log()
    log.begin()
    log.row(1)
    log.end()
    log.number += 1
    log.events.append(log.writer.gtid(UUID, log.number))
    log.statement("FROBNICATE TABLE t", databases, db="logs")
    log.begin()
    log.row(2)
    log.end()
    if passes:
        assert log.read()[0] == [1, 2]
    else:
        with pytest.raises(UnsupportedError, match="the log holds a statement that headgate cannot read"):
            log.read()
    assert log.read(["logs.none"] if databases == ["shop"] else [])[0] == []


def test_bytes_of_a_statement_that_are_no_text_can_be_printed() -> None:
    log = Log()
    log.begin()
    log.events.append(log.writer.query(b"INSERT INTO t VALUES (_binary'\xff\xfe')", databases=["shop"]))
    with pytest.raises(UnsupportedError) as caught:
        log.read()
    assert caught.value.statement == r"INSERT INTO t VALUES (_binary'\udcff\udcfe')"
    assert str(caught.value).isprintable()


def test_a_ddl_statement_whose_bytes_are_no_text_can_be_stored_and_printed() -> None:
    log = Log()
    log.number = 1
    log.events += [log.writer.gtid(UUID, 1), log.writer.query(b"DROP TABLE t /* caf\xe9 */", "shop")]
    decoder = LogDecoder(WANTED, DecodeOptions(TablePatterns(FOLLOWED)))
    (ddl,) = (item for item in log.decoded(decoder) if isinstance(item, Ddl))
    assert (ddl.action, ddl.table) == ("drop", "t")
    assert ddl.statement == r"DROP TABLE t /* caf\udce9 */"


@pytest.mark.parametrize("kind", ["plain", "temporary", "connection_id"])
def test_statements_about_temporary_tables_change_no_table_of_their_names(kind: str) -> None:
    """A session with binlog_format=STATEMENT logs them, with a flag. So are statements about a table with a column
    DEFAULT (CONNECTION_ID()), as MySQL 9.7 logs them."""
    is_temporary = kind == "temporary"
    flags = 0 if kind == "plain" else codes.FLAG_THREAD_SPECIFIC
    log = Log()
    for text in (
        "TRUNCATE TABLE t", "ALTER TABLE t ADD x INT", "CREATE INDEX i ON t (id)", "ALTER TABLE t RENAME TO v",
        "CREATE TABLE u LIKE t",
    ):  # fmt: skip
        log.number += 1
        is_truncate = text.startswith("TRUNCATE")
        databases = None if is_truncate and not is_temporary else ["shop"]
        query = log.writer.query(
            text, "shop", databases=databases, flags=flags, is_atomic=is_truncate or not is_temporary
        )
        log.events += [log.writer.gtid(UUID, log.number), query]
    decoder = LogDecoder(WANTED, DecodeOptions(TablePatterns(FOLLOWED)))
    items = list(log.decoded(decoder))
    ddl = [f"{item.action} {item.table}" for item in items if isinstance(item, Ddl)]
    assert ddl == (["create u"] if is_temporary else ["alter t", "alter t", "rename t", "create u"])
    truncates = [image for item in items if isinstance(item, LogBlock) for image in item.images]
    assert len(truncates) == (not is_temporary)
    assert decoder.received() == GtidSet.parse(f"{UUID}:1-5")


@pytest.mark.parametrize(
    "text", [b"TRUNCATE TABLE `\xff`", b"ALTER TABLE `\xff` ADD x INT", b"RENAME TABLE t TO `\xff`"]
)
def test_names_that_are_no_text(text: bytes) -> None:
    """Only damage makes them, where checksums are off."""
    log = Log()
    log.number += 1
    query = log.writer.query(text, "shop", databases=["shop"], is_atomic=True)
    log.events += [log.writer.gtid(UUID, log.number), query]
    with pytest.raises(DecodeError, match="not UTF-8") as raised:
        log.read()
    assert raised.value.fields["gtid"] == f"{UUID}:1"


def test_transactions_that_are_not_wanted_may_hold_anything() -> None:
    log = Log()
    for load in (False, True):
        log.begin()
        log.events.append(log.writer.file_piece(codes.BEGIN_LOAD_QUERY))
        log.statement("INSERT INTO t VALUES (1)", ["shop"], load=load)
        log.end()
    log.begin()
    log.row(7)
    log.end()
    assert log.read(wanted=GtidSet.parse(f"{UUID}:3"))[0] == [7]


def test_who_follows_no_table_reads_on() -> None:
    """Copies of the log and cuts ask only where transactions end."""
    log = Log()
    log.begin()
    log.statement("INSERT INTO t VALUES (1)", 254)
    log.statement("LOAD DATA INFILE 'x' INTO TABLE t", None, load=True)
    log.end()
    assert log.read([])[1].received() == GtidSet.parse(f"{UUID}:1")


@pytest.mark.parametrize("table", ["shop.copy", "logs.copy", "shop.tmp"])
def test_a_table_made_of_a_query(table: str) -> None:
    """Its rows are not in the log; while it is made, the server lets nothing else be written."""
    log = Log()
    log.number += 1
    log.events.append(log.writer.gtid(UUID, log.number))
    log.statement(f"CREATE TABLE {table} AS SELECT * FROM shop.orders", ["logs", "shop"])
    log.begin()
    log.row(1)
    log.end()
    if table == "shop.copy":
        with pytest.raises(UnsupportedError, match=r"the rows of a new table shop\.copy") as caught:
            log.read()
        assert caught.value.gtid == f"{UUID}:1"
    else:
        assert log.read()[0] == [1]


@pytest.mark.parametrize("undo", ["ROLLBACK", "ROLLBACK TO `a`", "ROLLBACK WORK TO SAVEPOINT `a`"])
@pytest.mark.parametrize("rows", [False, True])
def test_what_was_rolled_back(undo: str, rows: bool) -> None:
    """A transaction of statements that are passed over may be undone; nobody can tell which rows were."""
    log = Log()
    log.begin()
    log.events.append(log.writer.query("SAVEPOINT `a`"))
    log.statement("INSERT INTO t VALUES (1)", ["logs"])
    if rows:
        log.row(5, "elsewhere")
    log.events.append(log.writer.query(undo))
    if undo != "ROLLBACK":
        log.row(6)
        log.end()
    log.begin()
    log.row(7)
    log.end()
    if rows:
        with pytest.raises(UnsupportedError, match="rolled back after a non-transactional table was changed"):
            log.read()
    else:
        expected = [7] if undo == "ROLLBACK" else [6, 7]
        rows_read, decoder = log.read()
        assert rows_read == expected
        assert decoder.received() == GtidSet.parse(f"{UUID}:1-2")


def test_an_event_of_a_file_that_ends_early_is_refused() -> None:
    log = Log()
    log.begin()
    log.events.append(log.writer.event(codes.EXECUTE_LOAD_QUERY, b"\1\0\0\0"))
    with pytest.raises(DecodeError) as caught:
        log.read()
    assert caught.value.file is not None
    assert caught.value.pos is not None
