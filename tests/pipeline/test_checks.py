"""What is checked before a run: what a file says in other languages, all of it at once, and the server's log."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from headgate.config import parse_config
from headgate.errors import BinlogPurgedError, ConfigError
from headgate.lake import Lake
from headgate.mysql import Connection
from headgate.pipeline import _checks, check_log, check_texts
from tests.lake.tables import make_ledger
from tests.logged import logged_here

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TEXT = """
name = "p"
[source]
url = "mysql://u@h"
tables = ["a.*"]
[target]
path = "/nowhere/lake"
[columns]
"a.*" = { n = { rename = "amount" } }
[tables."a.b"]
rows = "n > 1"
[tables."a.c"]
condition = "n > 1"
"""


def test_what_a_file_says_in_other_languages_is_checked_at_once() -> None:
    check_texts(parse_config(TEXT))
    text = TEXT.replace("@h", "@h/?tls=perhaps").replace("n > 1", "n > (1").replace('"amount"', '"_seq"')
    with pytest.raises(ConfigError) as caught:
        check_texts(parse_config(text.replace("[target]", 'start = "yesterday"\n[target]')))
    begins = (
        "unknown tls mode 'perhaps'; use one of",
        "the start is 'yesterday'; expected current, earliest,",
        'the condition of [tables."a.c"]: ',
        "rows of a.b: ",
        "[columns] renames a.*.n to _seq, a name that headgate uses itself",
    )
    assert len(caught.value.lines) == len(begins)
    for line, begin in zip(caught.value.lines, begins, strict=True):
        assert line.startswith(begin)


def test_a_route_that_matches_no_table_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    routes = '[routes]\n"a.b" = "x.y"\n"a.*" = "z.{table}"\n"A.*" = "x.{table}"\n"b.*" = "b.{table}"\n'
    _checks._check_routes(parse_config(TEXT + routes), ["a.b", "a.c"])
    assert [record.getMessage() for record in logged_here(caplog)] == [
        f'the route of "{pattern}" in [routes] matches no followed table: check the spelling (case counts)'
        for pattern in ("A.*", "b.*")
    ]


class Server:
    """A server that has purged a part of its log."""

    def __init__(self, purged: str) -> None:
        self.purged = purged

    def query(self, _: str) -> list[tuple[str, ...]]:
        return [("ON", UUID, self.purged, f"{UUID}:1-30")]


@pytest.mark.parametrize(
    ("purged", "more", "lost"),
    [("1-12", "", "11-12"), ("1-10", "", None), ("1-12", 'snapshot_mode = "when_needed"', None)],
)
@pytest.mark.parametrize("is_local", [True, False])
def test_a_plan_says_that_log_was_purged_which_no_batch_has_read(
    purged: str, more: str, lost: str | None, is_local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only if the next run continues there: without a checkpoint it reads the tables again."""
    text = TEXT.replace("/nowhere", str(tmp_path)).replace("[target]", f"{more}\n[target]")
    config, lake = parse_config(text), Lake(str(tmp_path / "lake") if is_local else (tmp_path / "lake").as_uri())
    assert lake.is_local == is_local
    monkeypatch.setattr(Connection, "open", lambda _: contextlib.nullcontext(Server(f"{UUID}:{purged}")))
    check_log(config, lake)
    make_ledger(Lake.at(tmp_path / "lake"), [1, 2], gtid=f"{UUID}:1-10")
    check_log(config, lake)
    Path(tmp_path, "lake/_headgate/checkpoint/offsets").mkdir(parents=True)
    Path(tmp_path, "lake/_headgate/checkpoint/offsets/0").write_text("v1")
    if lost is None:
        check_log(config, lake)
        return
    with pytest.raises(BinlogPurgedError, match="--snapshot-mode when_needed has all tables read again") as caught:
        check_log(config, lake)
    assert caught.value.fields["needed"] == f"{UUID}:{lost}"
