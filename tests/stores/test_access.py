"""Credentials of object stores: given once, as Spark's settings, and translated for everybody else."""

from __future__ import annotations

import errno
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from headgate.carrier import ControlFile, ControlFolder, Waiting
from headgate.delta import TableLog, discard_files, files_of, open_parquet
from headgate.errors import ConfigError, EngineError, HeadgateError, StorageError, StoreUnavailableError, TargetError
from headgate.lake import Lake, find_newest
from headgate.stores import (
    VARIABLE,
    _access,
    check_bucket,
    check_scheme,
    folder_of,
    has_credentials,
    is_remote,
    share_credentials,
    store_errors,
)
from headgate.stores._access import open_client

KEYS = {"fs.s3a.access.key": "mine", "fs.s3a.secret.key": "hidden"}
NOWHERE = {**KEYS, "fs.s3a.endpoint": "http://127.0.0.1:9", "fs.s3a.attempts.maximum": "2"}
"""A store that nobody serves."""


def test_what_one_process_is_told_it_passes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    passed = share_credentials("s3a://b/lake", NOWHERE.get)
    share_credentials("s3a://other/lake", dict[str, str]().get)
    assert list(passed) == [VARIABLE]
    assert has_credentials("s3a://b/lake/t", passed)
    assert not has_credentials("s3a://other/lake", passed)
    monkeypatch.setenv(VARIABLE, passed[VARIABLE])
    client, path = open_client("s3a://b/lake/t")
    assert isinstance(client, S3Store)
    assert path == "lake/t"
    assert open_client("s3://b")[0] is client
    assert share_credentials("/a/lake", KEYS.get) == {}
    known = json.loads(share_credentials("s3a://b/lake", KEYS.get)[VARIABLE])
    assert known["s3://b"] == {"access_key_id": "mine", "secret_access_key": "hidden"}


def test_clients_of_other_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    container = "abfss://c@acc.dfs.core.windows.net/lake"
    share_credentials("gs://b/lake", {"fs.gs.auth.type": "UNAUTHENTICATED"}.get)
    share_credentials(container, {"fs.azure.account.key.acc.dfs.core.windows.net": "aGlkZGVu"}.get)
    for path, kind in (
        ("gs://b/lake", GCSStore),
        (container, AzureStore),
        ("abfss://d@acc.dfs.core.windows.net", AzureStore),
    ):
        assert isinstance(open_client(path)[0], kind)


@pytest.mark.parametrize("path", ["hdfs://n:8020/lake", "dbfs:/lake", "https://host/lake", "oss://b/lake"])
def test_other_stores_are_refused_with_the_remedy(path: str) -> None:
    with pytest.raises(ConfigError, match=r"there are no tables in such a store; use s3a://, gs:// or abfss://, or a"):
        Lake.at(path)


def test_paths_that_are_not_refused() -> None:
    assert not is_remote("/a/lake")
    assert is_remote("file:/a/lake")
    for path in (
        "/a/lake",
        "s3a://b/lake",
        "s3://b",
        "gs://b/l",
        "abfss://c@a.dfs.core.windows.net/l",
        "wasbs://c@a/l",
    ):
        check_scheme(path)


def test_roles_and_profiles_need_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    share_credentials(
        "s3a://with-role/l", {"fs.s3a.assumed.role.arn": "arn:aws:iam::1:role/r", "fs.s3a.endpoint.region": "a"}.get
    )
    with pytest.raises(ConfigError, match="AWS's profiles and assumed roles need boto3: pip install boto3"):
        open_client("s3a://with-role/l")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    share_credentials("s3a://with-profile/l", {"fs.s3a.endpoint.region": "a"}.get)
    with pytest.raises(ConfigError, match="need boto3"):
        open_client("s3a://with-profile/l")


ANSWER = "Error performing GET http://h/b/l in 3ms - Server returned non-2xx status code: "


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.GenericError("GET http://h/b in 1ms - HTTP error: error sending request"), StoreUnavailableError),
        (exceptions.GenericError(f"{ANSWER}503 Service Unavailable: SlowDown"), StoreUnavailableError),
        (exceptions.GenericError(f"{ANSWER}502 Bad Gateway"), StoreUnavailableError),
        (exceptions.GenericError(f"{ANSWER}429 Too Many Requests"), StoreUnavailableError),
        (exceptions.GenericError(f"{ANSWER}400 Bad Request: <Code>ExpiredToken</Code>"), StoreUnavailableError),
        (exceptions.GenericError(f"{ANSWER}400 Bad Request: <Code>RequestTimeout</Code>"), StoreUnavailableError),
        (exceptions.GenericError(f"{ANSWER}400 Bad Request: <Code>IncompleteBody</Code>"), StoreUnavailableError),
        (exceptions.GenericError(f"{ANSWER}400 Bad Request: <Code>InvalidRequest</Code>"), TargetError),
        (OSError("an upload's part: error sending request"), StoreUnavailableError),
        (exceptions.GenericError(f"{ANSWER}404 Not Found: NoSuchBucket"), TargetError),
        (exceptions.GenericError(f"{ANSWER}403 Forbidden"), TargetError),
        (exceptions.PermissionDeniedError("denied"), TargetError),
        (exceptions.UnauthenticatedError("who"), TargetError),
        (exceptions.NotSupportedError("no"), TargetError),
    ],
)  # fmt: skip
def test_a_store_that_does_not_answer_may_later_and_one_that_refuses_will_not(
    error: Exception, kind: type[HeadgateError]
) -> None:
    text = str(error).replace(": ", ":\n  ")
    error.args = (f"{text}\n\nDebug source:\nGeneric",)
    with pytest.raises(kind, match=r"^s3a://b/l cannot be reached: ") as raised, store_errors("s3a://b/l"):
        raise error
    assert "\n" not in str(raised.value)
    assert "Debug" not in str(raised.value)
    assert type(raised.value) is kind


def test_missing_files_and_local_errors_stay_what_they_are() -> None:
    for path, error in (("s3a://b/l", FileNotFoundError("x")), ("/l", PermissionError(13, "denied", "/l/x"))):
        with pytest.raises(OSError) as raised, store_errors(path):
            raise error
        assert raised.value is error


class _Conflict(BaseHTTPRequestHandler):
    """S3's answer to a request beside another one that changes the same file."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def do_GET(self) -> None:
        body = b"<Error><Code>OperationAborted</Code></Error>"
        self.send_response(409)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_DELETE = do_GET  # noqa: N815 - the server's name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


def test_a_request_beside_another_one_for_the_file_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore says of each that the file exists. That answers only who creates it."""
    monkeypatch.setenv(VARIABLE, "")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Conflict) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = {"fs.s3a.endpoint": f"http://127.0.0.1:{server.server_port}", "fs.s3a.path.style.access": "true"}
        share_credentials("s3a://b/busy", {**KEYS, **endpoint}.get)
        files = folder_of("s3a://b/busy")
        for ask in (lambda: files.put("a", b"x"), lambda: files.read("a"), lambda: files.delete("a")):
            with pytest.raises(StoreUnavailableError, match="OperationAborted"):
                ask()
        with pytest.raises(FileExistsError), files.new_file("a", b"x") as create:
            create()
        server.shutdown()


def test_whatever_is_asked_of_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    share_credentials("s3a://b", {**NOWHERE, "fs.s3a.path.style.access": "true"}.get)
    files, control, lake = files_of("s3a://b/l/t"), ControlFolder("s3a://b/l/inbox"), Lake("s3a://b/l")
    for ask in (
        lambda: files.read("a"), lambda: files.identity("a"), lambda: files.has_folder("a"),
        lambda: list(files.below()), lambda: list(files.folders()), lambda: files.put("a", b"x"),
        lambda: files.delete("a"), lambda: files.open_input("a"), lambda: TableLog("s3a://b/l/t").refresh(),
        lambda: find_newest(lake), lake.check_root, control.signals, control.requests, control.hint,
        control.sink_tables, lambda: control.write("a", {}), lambda: control.delete("a"),
    ):  # fmt: skip
        with pytest.raises(StorageError, match=r"^s3a://b/l.* cannot be reached: .*error sending request"):
            ask()
    with pytest.raises(StorageError), open_parquet("s3a://b/l/t", "a"):
        pass
    with pytest.raises(StorageError), files.create("a") as sink:
        sink.write(b"x")
    with pytest.raises(StorageError), files.new_file("a", b"x") as create:
        create()
    discard_files("s3a://b/l/t", ["a"])
    control.record_state(Waiting(1, 1, False))
    control.forget(ControlFile.TROUBLE)
    assert control.trouble() is None
    assert control.waiting() is None


def test_a_bucket_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    share_credentials("s3a://b", {**NOWHERE, "fs.s3a.path.style.access": "true"}.get)
    with pytest.raises(StorageError, match=r"^s3a://b/lake cannot be reached"):
        check_bucket("s3a://b/lake")


def test_a_fork_of_a_process_that_has_used_a_store_is_refused(tmp_path: Path) -> None:
    """Its threads are not there: it would wait forever."""
    folder_of(tmp_path.as_uri()).put("a", b"x")
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            folder_of(tmp_path.as_uri()).read("a")
        except EngineError as error:
            os.write(sender, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(sender)
    with os.fdopen(receiver) as answer:
        assert "a forked process cannot reach object stores" in answer.read()
    assert not _access._is_forked


def test_settings_of_a_store_of_tests_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, Any] = {}
    monkeypatch.setenv(VARIABLE, "")
    assert share_credentials("file:/a/lake", KEYS.get) == environment


def test_a_commit_on_a_full_disk_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    files = files_of(str(tmp_path))
    with pytest.raises(OSError, match="No space left") as failed, files.new_file("_delta_log/1.json", b"{}"):
        pass
    assert failed.value.filename == str(tmp_path / "_delta_log" / "1.json")
    assert not [*Path(tmp_path, "_delta_log").iterdir()]
