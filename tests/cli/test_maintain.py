"""``headgate maintain``: what it prints."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from headgate.cli import _maintain, app
from headgate.delta import files_of
from tests.upkeep.test_maintain import written

FILE = """
name = "shop"
[source]
url = "mysql://headgate@127.0.0.1:3306"
tables = ["shop.*"]
[target]
path = "{path}"
retention_hours = 1
"""


def run(path: str, tmp_path: Path, *options: str) -> int:
    file = tmp_path / "pipeline.toml"
    file.write_text(FILE.format(path=path))
    code: int = app(["maintain", str(file), *options], standalone_mode=False)
    return code


def test_what_is_done_and_what_it_comes_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = written(tmp_path)
    assert run(made.lake.path, tmp_path, "--dry-run") == 0
    planned = capsys.readouterr().out.splitlines()
    assert planned[1].startswith("shop/t: 27 files, 0.0 MB; would be removed: 8 files")
    assert len(made.files("shop.t")) == 13
    assert run(made.lake.path, tmp_path) == 0
    done = capsys.readouterr().out.splitlines()
    assert "6 folded" in done[0]
    assert done[1].endswith("left: 19 files, 0.0 MB")
    assert done[-2].startswith("all tables: ")
    assert done[-1].startswith("at the rate of the last hour (")
    assert len(made.files("shop.t")) == 5


def test_files_that_cannot_be_removed_are_no_success(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = written(tmp_path)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(type(files_of(made.lake.current("shop.t"))), "delete", refuse)
        assert run(made.lake.path, tmp_path) == 1
    out = capsys.readouterr().out
    assert "8 files could not be removed: see the warnings, then repeat it\n" in out
    assert sum("cannot be removed: Permission denied" in record.message for record in caplog.records) == 8
    assert run(made.lake.path, tmp_path) == 0
    assert len(made.files("shop.t")) == 5


def test_the_lake_of_another_pipeline_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its retention is in another file."""
    made = written(tmp_path, pipeline="mine")
    assert run(made.lake.path, tmp_path) == 3
    assert "belongs to pipeline 'mine'" in capsys.readouterr().err
    assert len(made.files("shop.t")) == 13


def test_on_a_terminal_it_is_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = written(tmp_path)
    monkeypatch.setattr(_maintain, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    assert run(made.lake.path, tmp_path, "--dry-run") == 0
    table = capsys.readouterr().out
    assert all(text in table for text in ("would be removed", "in a week", "_headgate/ledger", "8 files, 0.0 MB"))


@pytest.mark.parametrize(("path", "text"), [("hdfs://host/lake", "use s3a://, gs:// or abfss://"), ("x", "no ledger")])
def test_what_cannot_be_maintained(tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, text: str) -> None:
    assert run(path, tmp_path) == 2
    assert text in capsys.readouterr().err
