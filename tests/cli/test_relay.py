"""``headgate relay`` and ``headgate consume``: what they refuse before they begin, and what a consumer prints."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.cli import app
from headgate.cli._consume import _Lines, _WindowLines
from headgate.cli._settings import setting
from headgate.config import Model, RelaySettings, SourceSettings
from headgate.errors import ScnNotFoundError
from headgate.relay.client import ClientTuning, Reader, RelayClient
from headgate.relay.databus import FIRST, StreamPosition, checkpoint_json
from headgate.relay.server import RelayConfig
from tests.certificates import make_certificates
from tests.relay.client.test_mishaps import Memory
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import PATIENCE_SECONDS, PET, served
from tests.relay.server.test_app import pets
from tests.relay.server.test_bootstrap import GENERATION, NAME, Shelf, put, serving

TOML = """
[[physical]]
id = 1
name = "p"
url = "mysql://root@127.0.0.1:1"
[[physical.sources]]
id = 40
name = "a.B"
table = "a.b"
"""


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("code", "more", "message"),
    [
        (2, ["--scn", "guess"], "'guess' is not one of gtid-generation, binlog-offset, relay-generated"),
        (2, ["--scn", "application"], "application and source-generated need scn_column"),
        (2, ["--disk-bytes", "1000000000"], "needs a state folder"),
        (2, ["--disk-bytes", "1000", "--state", "state"], "disk_bytes (1000) is less than memory_bytes (268435456)"),
        (2, ["--log-disk-bytes", "1", "--state", "state"], "log_disk_bytes (1) is less than 1048576; 0: no archive"),
        (2, ["--event-version", "3"], "event-version"),
        (2, ["--before-images", "--event-version", "1"], "before_images needs events of version 2"),
        (2, ["--properties", "nowhere"], "do not give properties"),
        (3, ["--anew"], "127.0.0.1:1"),
    ],
)
def test_what_a_relay_refuses(tmp_path: Path, code: int, more: list[str], message: str) -> None:
    file = tmp_path / "relay.toml"
    file.write_text(TOML)
    got, out, error = run("relay", "--sources", str(file), "--port", "0", *more)
    assert (got, out) == (code, "")
    assert error.startswith("error: ")
    assert message in error


def test_options_switch_off_what_the_file_keeps_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[RelayConfig] = []
    monkeypatch.setattr("headgate.cli._relay._serve", lambda config, *_, **__: served.append(config))
    file = tmp_path / "relay.toml"
    file.write_text(f'state = "state"\ndisk_bytes = {1 << 30}\nlog_disk_bytes = {1 << 30}\n{TOML}')
    for options in ([], ["--log-disk-bytes", "0"], ["--disk-bytes", "0"]):
        assert run("relay", "-Y", str(file), *options)[0] == 0
    assert [(one.disk_bytes >> 30, one.log_disk_bytes >> 30) for one in served] == [(1, 1), (1, 0), (0, 1)]


def test_help_at_80_columns() -> None:
    result = CliRunner().invoke(app, ["relay", "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    text = " ".join(" ".join(line.strip("│ ").split()) for line in result.stdout.splitlines())
    for part in (
        "--scn KIND What SCNs are made of: gtid-generation, binlog-offset, relay-generated,",
        "--scn-column COLUMN Column or db.table.column",
        "--event-version 1|2 Version of Databus's events",
        "--state DIR Folder for positions",
        "--tls-key FILE Key of the certificate",
        "--log-level LEVEL Log lines from this level on (debug, info, warning, error)",
        "0: no files. [default: (the file's, else 0)]",
        "0: no archive. [default: (the file's, else 0)]",
    ):
        assert part in text


@pytest.mark.parametrize("model", [RelaySettings, SourceSettings])
def test_help_of_a_setting_names_options(model: type[Model]) -> None:
    """Not keys of a file."""
    for name in model.model_fields:
        shown = setting(model, name).help
        assert not {*re.findall(r"\b\w+_\w+\b", shown)} & {*model.model_fields}, name
    assert "--signal-table" in setting(SourceSettings, "watermark").help
    assert "batch" not in setting(SourceSettings, "lock_wait_seconds").help


def test_a_port_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    file, token = tmp_path / "relay.toml", tmp_path / "token"
    file.write_text(TOML)
    token.write_text("0123456789abcdef")
    everybody = ["relay", "--sources", str(file), "--host", "0.0.0.0", "--port", "0", "--anew"]
    code, _, error = run(*everybody)
    assert (code, "others could read all changes: use --token-file" in error) == (2, True)
    code, _, error = run(*everybody, "--insecure")
    assert (code, error.startswith("warning: every client that reaches 0.0.0.0 can read all changes")) == (3, True)
    code, _, error = run(*everybody, "--token-file", str(token))
    assert (code, error.startswith("warning: tokens and changes cross the network")) == (3, True)
    _, certificate, key = make_certificates(tmp_path)
    with_tls = [*everybody, "--token-file", str(token), "--tls-cert", certificate]
    code, _, error = run(*with_tls, "--tls-key", key)
    assert (code, "warning" in error) == (3, False)
    file.write_text(f'{TOML}[[tenants]]\nname = "a"\ntoken_file = "token"\n')
    code, _, error = run(*with_tls)
    assert (code, "remove --token-file" in error) == (2, True)


def test_a_consumer_prints_whole_transactions_and_goes_on(tmp_path: Path) -> None:
    with served() as relay:
        for n in (1, 2):
            relay.put(block(people([n, n + 1], ops="cd", gtids=[f"{UUID}:{n}"] * 2, pos=[n * 100] * 2)))
        url, kept = f"http://127.0.0.1:{relay.port}", ["--checkpoints", str(tmp_path), "--windows", "1"]
        code, out, error = run("consume", url, *kept)
        assert (code, error) == (0, "")
        lines = [json.loads(line) for line in out.splitlines()]
        assert lines[0] == {
            "source": "com.linkedin.events.example.or_test.Person", "scn": (1 << 48) + 1, "opcode": "UPSERT", "key": 1,
            "ts": "2023-11-14T22:13:20.000000Z",
            "row": {"id": 1, "firstName": "first1", "lastName": "last1", "birthDate": "1970-01-02", "deleted": "false"},
        }  # fmt: skip
        assert [(one["opcode"], one["key"]) for one in lines] == [("UPSERT", 1), ("DELETE", 2)]
        _, out, _ = run("consume", url, *kept)
        assert [json.loads(line)["key"] for line in out.splitlines()] == [2, 3]
        code, _, error = run("consume", url, "-s", "x")
        assert code == 2
        assert "has no source x" in error


def test_a_consumer_counts_the_transactions_that_it_prints() -> None:
    """Not those of other sources."""
    with served() as relay:
        put(relay, 1, 2)
        relay.put(block(pets([7], gtids=[f"{UUID}:3"], pos=[300])))
        put(relay, 4)
        relay.put(block(pets([8], gtids=[f"{UUID}:5"], pos=[500])))
        code, out, error = run("consume", f"http://127.0.0.1:{relay.port}", "-s", PET.name, "--windows", "1")
    assert (code, error) == (0, "")
    assert [json.loads(line)["scn"] - GENERATION for line in out.splitlines()] == [3]


def test_a_consumer_prints_the_rows_before_updates() -> None:
    rows = people([1, 1, 1], ops="cbu", ordinals=[0, 1, 1], columns={"first_name": ["a", "a", "b"]})
    with served(event_version=2, before_images=True) as relay:
        relay.put(block(rows))
        words = ["consume", f"http://127.0.0.1:{relay.port}", "--windows", "1"]
        code, out, error = run(*words, "--before-images")
        assert (code, error) == (0, "")
        insert, update = (json.loads(line) for line in out.splitlines())
        assert (insert["row"]["firstName"], "before" in insert) == ("a", False)
        assert (update["row"]["firstName"], update["before"]) == ("b", insert["row"])
        _, out, _ = run(*words)
        assert not [line for line in out.splitlines() if "before" in json.loads(line)]


@pytest.mark.parametrize(
    ("code", "words", "message"),
    [
        (2, ["--group", "g", "--windows", "1"], "with --group the relay stores the checkpoints"),
        (2, ["--group", "g", "--checkpoints", "folder"], "with --group the relay stores the checkpoints"),
        (2, ["--group", "g", "--checkpoint-seconds", "1"], "with --group the relay stores the checkpoints"),
        (2, ["--group", "g", "--lease-seconds", "0"], "a lease of 0.1 to 600 seconds"),
        (2, ["--group", "g"], "this relay keeps no groups"),
        (2, ["--partitions", "4"], "--partitions and --lease-seconds are for a group"),
        (2, ["--lease-seconds", "4"], "--partitions and --lease-seconds are for a group"),
        (2, ["--token-file", "nowhere"], "the token file nowhere cannot be read"),
    ],
)
def test_what_a_consumer_refuses(code: int, words: list[str], message: str) -> None:
    with served() as relay:
        got, out, error = run("consume", f"http://127.0.0.1:{relay.port}", *words)
    assert (got, out) == (code, "")
    assert message in error


@pytest.mark.parametrize("group", [[], ["--group", "g"]])
def test_a_consumer_gives_up_in_the_time_it_has(group: list[str]) -> None:
    code, _, error = run("consume", "http://127.0.0.1:1", *group, "--give-up-seconds", "0.3")
    assert code == 3
    assert "given up after" in error


def test_a_consumer_ends_when_nobody_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(lines: list[str]) -> None:
        raise BrokenPipeError(32, "Broken pipe", next(iter(lines)))

    monkeypatch.setattr("headgate.cli._consume.write_lines", broken)
    monkeypatch.setattr("headgate.cli._interrupt.discard_output", lambda: None)
    with served() as relay:
        relay.put(block(people([1])))
        assert run("consume", f"http://127.0.0.1:{relay.port}") == (0, "", "")


@pytest.mark.parametrize("group", [[], ["--group", "g", "--partitions", "1"]])
def test_a_consumer_whose_reader_has_gone_ends_quietly(tmp_path: Path, group: list[str]) -> None:
    """As in `headgate consume URL | head -1`."""
    with served(state=tmp_path) as relay:
        put(relay, 1)
        words = [sys.executable, "-m", "headgate.cli", "consume", f"http://127.0.0.1:{relay.port}", *group]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["key"] == 1
            process.stdout.close()
            put(relay, 2)
            assert process.stderr is not None
            error = process.stderr.read()
            assert (process.wait(PATIENCE_SECONDS), error) == (0, "")


def test_a_disk_that_is_full_ends_a_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headgate.cli._consume._MEMORY_CHARACTERS", 100)
    monkeypatch.setattr("headgate.cli._consume.TemporaryFile", full)
    with served() as relay:
        put(relay, 1)
        code, out, error = run("consume", f"http://127.0.0.1:{relay.port}")
    assert (code, out) == (2, "")
    assert re.fullmatch(
        r"error: cannot buffer a large transaction in .*: No space left on device; make room on its disk\n", error
    )


def test_a_transaction_that_has_not_ended_is_not_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lines it has; and none is left of one that begins again."""
    monkeypatch.setattr("headgate.cli._consume._MEMORY_CHARACTERS", 100)
    held = _WindowLines()
    for lines in ([f"{n} \u2028 é 𝄞" for n in range(1_000)], ["one"], [], ["x" * 100], ["y" * 99, "z"]):
        for dropped in ("a" * 100, "b"):
            held.add(dropped)
        held.drop()
        for line in lines:
            held.add(line)
            assert len(held._lines) <= 100
        assert list(held.take()) == lines
    assert list(held.take()) == []


def test_a_large_transaction_is_printed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.cli._consume._MEMORY_CHARACTERS", 1_000)
    monkeypatch.setattr("headgate.cli._common._AT_ONCE", 7)
    with served() as relay:
        relay.put(block(people(range(100), gtids=[f"{UUID}:1"] * 100, pos=[100] * 100)))
        result = CliRunner().invoke(app, ["consume", f"http://127.0.0.1:{relay.port}", "--windows", "1"])
    assert [json.loads(line)["key"] for line in result.stdout.splitlines()] == list(range(100))


@pytest.mark.parametrize(("client", "words"), [("RelayClient", []), ("GroupMember", ["--group", "g"])])
def test_an_interrupt_is_the_end_of_consume(client: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that comes while lines are written."""

    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"headgate.relay.client.{client}.run", interrupted)
    assert run("consume", "http://127.0.0.1:1", *words) == (0, "", "")


def test_a_transaction_that_a_bootstrap_cuts_short_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows come with the others."""
    printed: list[str] = []
    really, goes = Reader.stream, iter([True])

    def stream(self: Reader, position: StreamPosition) -> Any:
        if position.offset > 0 and next(goes, False):
            raise ScnNotFoundError("the relay no longer holds it", scn=position.scn)
        return really(self, position)

    monkeypatch.setattr(Reader, "stream", stream)
    with serving(Shelf([7])) as relay:
        relay.put(block(people(range(100, 110), gtids=[f"{UUID}:1"] * 10, pos=[100] * 10)))
        printer = _Lines(printed.extend).printer()
        client = RelayClient(
            f"http://127.0.0.1:{relay.port}", [NAME], printer, Memory(checkpoint_json(FIRST)), bootstrap=True,
            tuning=ClientTuning(stream_bytes=200),
        )  # fmt: skip
        printer.on_stop_bootstrap = client.stop
        client.run()
    assert list(goes) == []
    assert [json.loads(line)["key"] for line in printed] == [7]


def test_the_last_changes_of_a_bootstrap_are_printed_before_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream's checkpoint that follows says that they were given."""
    printed: list[str] = []
    shelf = Shelf([7])
    plan = shelf.plan
    with serving(shelf) as relay:

        def changed_meanwhile(source: Any, before: Any) -> Any:
            if before is not None:
                put(relay, 2)
            return plan(source, before)

        monkeypatch.setattr(shelf, "plan", changed_meanwhile)
        put(relay, 1)
        printer = _Lines(printed.extend).printer()
        client = RelayClient(f"http://127.0.0.1:{relay.port}", [NAME], printer, bootstrap=True)
        printer.on_stop_bootstrap = client.stop
        client.run()
    assert [json.loads(line)["key"] for line in printed] == [7, 2]


def test_an_interrupt_before_all_requested_windows_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor if the client ends in order, as it does between two windows."""

    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    for run_client in (interrupted, lambda _: None):
        monkeypatch.setattr("headgate.relay.client.RelayClient.run", run_client)
        assert run("consume", "http://127.0.0.1:1", "--windows", "2") == (130, "", "interrupted\n")
