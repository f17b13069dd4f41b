"""Requests to a store, counted by operation, in this process and in others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.stores import COUNTS_VARIABLE, Operation, folder_of, read_counts, shared_counts
from headgate.stores import _folder as folder_module

PUT, GET, LIST, DELETE = Operation


def test_each_request_is_counted_by_its_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path.as_uri())
    with shared_counts() as counts:
        folder.put("a", b"12")
        with folder.new_file("b", b"3") as create:
            create()
            with pytest.raises(FileExistsError):
                create()
        assert (folder.read("a"), folder.read("a", 1, 1)) == (b"12", b"2")
        with pytest.raises(FileNotFoundError):
            folder.read("c")
        assert folder.identity("c") is None
        with folder.open_input("a") as file:
            file.read()
        assert {file.name for file in folder.files()} == {"a", "b"}
        folder.delete("b")
        folder.delete("b")
        assert read_counts(counts) == {PUT: 3, GET: 5, LIST: 1, DELETE: 2}, "refusals count, too"
        monkeypatch.setattr(folder_module, "_PAGE", 1)
        assert [*folder.folders()] == []
        assert read_counts(counts)[LIST] == 3, "a page, and the end"
    assert not counts.exists()
    folder.put("a", b"4")


def test_a_replacement_of_the_same_second_and_size_is_another_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path.as_uri())
    folder.put("a", b"12")
    before = folder.identity("a")
    assert before is not None
    assert [file.identity() for file in folder.files()] == [before], "a listing has the same"
    with shared_counts() as counts:
        (tmp_path / "b").write_bytes(b"34")
        (tmp_path / "b").rename(tmp_path / "a")
        os.utime(tmp_path / "a", ns=(before.modified_ns, before.modified_ns))
        after = folder.identity("a")
        assert read_counts(counts) == {PUT: 0, GET: 1, LIST: 0, DELETE: 0}, "no further request"
    assert after is not None
    assert (after.modified, after.size) == (before.modified, before.size)
    assert after != before


def test_large_files_are_uploaded_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "_PUT_BYTES", 4)
    monkeypatch.setattr(folder_module, "_WRITER_BYTES", 4)
    folder = folder_of(tmp_path.as_uri())
    with shared_counts() as counts:
        folder.put("a", b"1234")
        assert read_counts(counts)[PUT] == 1
        folder.put("a", b"12345")
        assert read_counts(counts)[PUT] == 1 + 4, "the first request, two parts, the last one"
        with folder.create("b") as sink:
            sink.write(b"12345")
        assert read_counts(counts)[PUT] == 1 + 4 + 4


def test_other_processes_of_a_run_count_too(tmp_path: Path) -> None:
    code = f"from headgate.stores import folder_of; folder_of({tmp_path.as_uri()!r}).put('a', b'1')"
    with shared_counts() as counts:
        folder_of(tmp_path.as_uri()).put("b", b"1")
        environment = {**os.environ, COUNTS_VARIABLE: str(counts)}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        assert read_counts(counts)[PUT] == 2
