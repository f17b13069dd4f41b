"""``headgate relay`` and ``headgate consume``: what they refuse before they begin, and what a consumer prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli import app
from tests.relay.rows import UUID, block, people
from tests.relay.serving import served

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
    ("code", "more", "said"),
    [
        (2, ["--scn", "guess"], "--scn is 'guess'; expected gtid-generation, binlog-offset, relay-generated, "),
        (2, ["--scn", "application"], "scn_column belongs to application and source-generated"),
        (2, ["--disk-bytes", "1000000000"], "needs a state folder"),
        (2, ["--event-version", "3"], "event-version"),
        (2, ["--properties", "nowhere"], "leave the properties away"),
        (3, [], "127.0.0.1:1"),
    ],
)
def test_what_a_relay_refuses(tmp_path: Path, code: int, more: list[str], said: str) -> None:
    file = tmp_path / "relay.toml"
    file.write_text(TOML)
    got, out, error = run("relay", "--sources", str(file), "--port", "0", *more)
    assert (got, out) == (code, "")
    assert error.startswith("error: ")
    assert said in error


def test_a_port_that_others_reach_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    file.write_text(TOML)
    _, _, error = run("relay", "--sources", str(file), "--host", "0.0.0.0", "--port", "0")
    assert error.startswith("warning: whoever reaches 0.0.0.0 can read every change")


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
