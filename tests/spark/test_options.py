"""Options are checked where they are given, and passwords never pass."""

from __future__ import annotations

import json
import pickle

import pytest

from headgate.errors import ConfigError
from headgate.policies import DEFAULT, Hook, Policies
from headgate.relay.archive import LogOfRelay
from headgate.spark import OPTION_HELP, Options

BASE = {"url": "mysql://u@h:3307/?tls=required", "tables": "shop.*, !shop.tmp_*"}


def test_strings_become_values() -> None:
    values = {"CHUNK_ROWS": "10", "poll_ms": "250", "append": "FALSE", "start": "Current"}
    values |= {"watermark": "Lock", "lock_hold": "READ"}
    options = Options.parse({**BASE, **values})
    assert options.patterns == ("shop.*", "!shop.tmp_*")
    assert (options.chunk_rows, options.poll_ms, options.append, options.start) == (10, 250, False, "current")
    assert options.lock_hold == "read"
    assert options.images == "all"
    assert pickle.loads(pickle.dumps(options)) == options


def test_json_list_of_tables_may_hold_commas() -> None:
    assert Options.parse({**BASE, "tables": '["a.b,c", "[x]y.z"]'}).patterns == ("a.b,c", "[x]y.z")
    assert Options.parse({**BASE, "tables": "[ab]x.t"}).patterns == ("[ab]x.t",), "a pattern may begin with a bracket"


def test_windows_for_all_tables_or_by_table() -> None:
    assert Options.parse(BASE).policies.window == "rewind"
    assert Options.parse({**BASE, "window": "KEEP"}).policies.window == "keep"
    by_table = Options.parse({**BASE, "window": '{"a.b": "keep"}'}).policies
    assert (by_table.of("a.b").window, by_table.of("a.c").window) == ("keep", "rewind")


def test_one_table_is_meant_exactly() -> None:
    options = Options.parse({"url": "mysql://u@h", "table": "shop.a*b"})
    assert options.patterns == ("shop.a[*]b",)
    assert options.images == "keys"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"password": "p"}, "option password is refused"),
        ({"url": "mysql://u:p@h"}, 'option "url": leave the password out of the URL: set HEADGATE_PASSWORD, passw'),
        ({"url": "mysql://u@h/?password=p"}, 'option "url": leave the password out'),
        ({"url": "postgres://h"}, 'option "url": expected mysql://user@host:3306'),
        ({"url": "mysql://h/shop"}, 'option "url": a URL names no database'),
        ({"chunkrows": "1"}, "did you mean chunk_rows"),
        ({"xyz": "1"}, "known options: append"),
        ({"chunk_rows": "0"}, 'option "chunk_rows": expected a number greater than or equal to 1'),
        ({"chunk_rows": "ten"}, 'option "chunk_rows": expected a whole number, not "ten"$'),
        ({"snapshot_share": "nan"}, 'option "snapshot_share": expected a finite number'),
        ({"snapshot_new_tables": "wait"}, 'option "snapshot_new_tables": expected true or false, not "wait"$'),
        ({"images": "some"}, "expected 'all' or 'keys'"),
        ({"policies": "x"}, "unknown option policies"),
        ({"table": "a.b"}, "both options table and tables"),
        ({"tables": ""}, 'option "tables": expected at least one pattern'),
        ({"tables": "orders"}, "not a table pattern"),
        ({"tables": '["a.b", 1]'}, r'option "tables\[1\]": expected a text'),
        ({"tables": '["a.b" "c.d"]'}, "not a JSON list"),
        ({"tables": "!a.b"}, "at least one pattern"),
        ({"start": "yesterday"}, 'option "start": .* expected current, earliest, a time or a GTID set'),
        ({"as_of": "1-5"}, 'option "as_of": .*not a GTID set'),
        ({"password_env": "hunter 2"}, "expected the name of an environment variable"),
        ({"password_env": "A", "password_file": "b"}, "keep one"),
        ({"window": "skip"}, "expected rewind or keep or drop, or by table"),
        ({"window": '{"a.b": "skip"}'}, "expected rewind or keep or drop, or by table"),
        ({"watermark": "locks"}, "expected 'gtid', 'signal-table' or 'lock'"),
        ({"watermark": "signal-table"}, "signal_table"),
        ({"signal_table": "signals"}, "expected db.table"),
        ({"snapshot_locking_mode": "never"}, "expected 'minimal', 'extended' or 'none'"),
        ({"snapshot_cut": "end"}, "expected 'batch' or 'start'"),
        ({"window": '{"a.b"'}, "expected rewind or keep or drop, or by table"),
        ({"relay": "relay1:11115"}, "expected http://host:port or https"),
        ({"relay": "http://u:p@relay1:11115"}, "expected http://host:port or https"),
        ({"relay": "http://r:1", "watermark": "signal-table", "signal_table": "a.b"}, "do not go together"),
        ({"relay_source": "shop"}, "relay_source needs relay"),
        ({"conditions": '{"a.b": ";"}'}, 'option "conditions": .*semicolons'),
        ({"conditions": "[]"}, 'option "conditions": expected a JSON object'),
        ({"signal_topic": '{"bootstrap": "h", "topic": "t", "key": "k"}'}, 'needs option "control_path"'),
        ({"signal_topic": '{"bootstrap": "h", "topic": "t"}'}, r'option "signal_topic\.key" is missing'),
        ({"signal_topic": '{"bootstrap": "h", "topik": "t", "key": "k"}'}, r'unknown option "signal_topic\.topik"; d'),
        ({"signal_topic": "{"}, 'option "signal_topic": Expecting'),
    ],
)
def test_what_is_wrong_is_said_in_one_line(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Options.parse({**BASE, **values})
    assert "\n" not in str(caught.value)


def test_all_that_is_wrong_at_once() -> None:
    wrong = {"chunkrows": "1", "poll_ms": "x", "window": "skip", "columns": "{", "password": "hunter2", "table": "a.b"}
    with pytest.raises(ConfigError) as caught:
        Options.parse({**BASE, **wrong})
    begins = (
        "unknown option chunkrows; did you mean chunk_rows?",
        "option password is refused",
        'option "poll_ms": expected a whole number, not "x"',
        "both options table and tables are set",
        'option "columns": ',
        "option \"window\" is 'skip'; expected rewind or keep or drop",
    )
    assert len(caught.value.lines) == len(begins)
    for line, begin in zip(caught.value.lines, begins, strict=True):
        assert line.startswith(begin)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "initial", "later"),
    [
        ({}, None, None),
        ({"watermark": "lock"}, "setup", "setup"),
        ({"watermark": "lock", "lock_hold": "READ"}, "read", "read"),
        ({"watermark": "lock", "snapshot_locking_mode": "none"}, None, "setup"),
        ({"snapshot_locking_mode": "minimal"}, "setup", None),
        ({"snapshot_locking_mode": "extended"}, "read", None),
    ],
)
def test_locks_of_the_first_snapshot_and_of_later_ones(
    values: dict[str, str], initial: str | None, later: str | None
) -> None:
    options = Options.parse({**BASE, **values, **({"lock_wait_seconds": "3"} if values else {})})
    for first, hold in ((True, initial), (False, later)):
        locks = options.locks(initial=first)
        assert (locks and (locks.hold, locks.wait_seconds)) == (hold and (hold, 3))


def test_no_error_repeats_a_password() -> None:
    for values in ({"url": "mysql://u:hunter2@h"}, {"password": "hunter2"}, {"url": "pg://u:hunter2@h"}):
        with pytest.raises(ConfigError) as caught:
            Options.parse({**BASE, **values})
        assert "hunter2" not in str(caught.value)


def test_a_relay() -> None:
    values = {
        "url": "mysql://u@h", "tables": "d.*", "relay": "https://r:1", "relay_source": "a", "relay_token_file": "/t",
        "relay_ca_file": "/c", "relay_fallback": "TRUE",
    }  # fmt: skip
    settings = Options.parse(values).settings()
    assert settings.log == LogOfRelay("https://r:1", "a", "/t", "/c", falls_back=True)
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert Options.parse({"url": "mysql://u@h", "tables": "d.*"}).settings().log is None


def test_url_is_missing() -> None:
    with pytest.raises(ConfigError, match='option "url" is missing'):
        Options.parse({"tables": "a.b"})


def test_tables_are_missing() -> None:
    with pytest.raises(ConfigError, match=r'option "tables" .* or "table" .* is missing'):
        Options.parse({"url": "mysql://u@h"})


def test_settings_name_the_secret() -> None:
    settings = Options.parse({**BASE, "password_file": "/nowhere"}).settings()
    assert settings.secret.file == "/nowhere"
    assert settings.tls == "required"
    assert settings.port == 3307
    assert Options.parse({**BASE, "password_env": "X"}).settings().secret.env == "X"
    assert Options.parse({**BASE, "password_command": "p 'a b'"}).settings().secret.command == "p 'a b'"
    url = "mysql://u@h/?password_env=Y"
    assert Options.parse({**BASE, "url": url}).settings().secret.env == "Y"


def test_policies_are_for_all_tables_or_by_table() -> None:
    options = Options.parse({**BASE, "zero_dates": '{"shop.a": "TEXT", "*": "null"}', "time": "Microseconds"})
    assert options.policies == Policies.make(
        {"zero_dates": "null", "time": "microseconds"}, {"shop.a": {"zero_dates": "text"}}
    )
    assert pickle.loads(pickle.dumps(options)) == options
    assert Options.parse(BASE).policies == DEFAULT


@pytest.mark.parametrize("policy", ["never", "{", "[]", '{"shop.a": "never"}', "{}", '{"*": null}'])
def test_a_policy_that_does_not_exist(policy: str) -> None:
    with pytest.raises(ConfigError, match=r'option "zero_dates" is .* expected error or null or text, or by table'):
        Options.parse({**BASE, "zero_dates": policy})


def test_a_typed_table_has_no_variants() -> None:
    typed = {"url": "mysql://u@h", "table": "shop.a"}
    with pytest.raises(ConfigError, match="parse_json"):
        Options.parse({**typed, "json": "variant"})
    Options.parse({**typed, "json": '{"shop.b": "variant"}'})
    assert Options.parse({**BASE, "json": "variant"}).policies.of("shop.a").json == "variant"


def test_every_option_is_lower_case() -> None:
    assert all(name == name.lower() for name in OPTION_HELP)


@pytest.mark.parametrize("text", ["{", "[]", '{"d.t": 1}', '{"d.t": "n ="}'])
def test_rows_are_expressions_by_table(text: str) -> None:
    with pytest.raises(ConfigError, match='option "rows"'):
        Options.parse({"url": "mysql://u@h", "tables": "d.*", "rows": text})


def test_rows_are_policies_of_their_table() -> None:
    rows = '{"d.t": "n > 1"}'
    policies = Options.parse({"url": "mysql://u@h", "tables": "d.*", "rows": rows}).policies
    assert (policies.of("d.t").rows, policies.of("d.u").rows) == ("n > 1", "")


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "m:f", '{"*": "m:f"}', '{"d.t": "f"}', '{"d.t": "m:f@"}', '{"d.t": "m:f@a b"}', '{"d.t": {"m": "f"}}'],
)
def test_hooks_are_functions_by_table(text: str) -> None:
    with pytest.raises(ConfigError, match=r'option "hook" is .*; expected a function by table: \{"db.t": "module:fu'):
        Options.parse({"url": "mysql://u@h", "tables": "d.*", "hook": text})


def test_hooks_are_policies_of_their_table() -> None:
    base = {"url": "mysql://u@h", "tables": "d.*"}
    policies = Options.parse({**base, "hook": '{"d.t": "m.n:f"}'}).policies
    assert (policies.of("d.t").hook, policies.of("d.u").hook) == (Hook("m.n:f", "1"), None)
    with pytest.raises(ConfigError, match='option "hook" names the signal table'):
        Options.parse({**base, "signal_table": "d.t", "hook": policies.as_options()["hook"]})


@pytest.mark.parametrize("text", ["{", '"delete"', '["drop"]', '{"d.t": "delete"}', '{"d.t": [1]}', "[[]]"])
def test_skipped_operations_are_lists(text: str) -> None:
    with pytest.raises(ConfigError, match=r'option "skip" is .* expected a list of insert, update, delete, truncate,'):
        Options.parse({"url": "mysql://u@h", "tables": "d.*", "skip": text})


def test_skipped_operations_are_policies() -> None:
    base = {"url": "mysql://u@h", "tables": "d.*"}
    policies = Options.parse({**base, "skip": '["truncate", "delete"]'}).policies
    assert policies.of("d.t").skip == ("delete", "truncate")
    by_table = {"*": ["truncate"], "d.t": []}
    policies = Options.parse({**base, "skip": json.dumps(by_table)}).policies
    assert (policies.of("d.t").skip, policies.of("d.u").skip) == ((), ("truncate",))
    assert "skip" not in Options.parse(base).policies.as_options()


@pytest.mark.parametrize("text", ["{", "[]", '{"d.t": []}', '{"d.t": "a"}', '{"d.t": [1]}'])
def test_keys_are_columns_by_table(text: str) -> None:
    with pytest.raises(ConfigError, match=r'option "key" is .*; expected a list of columns by table'):
        Options.parse({"url": "mysql://u@h", "tables": "d.*", "key": text})


def test_keys_are_policies_of_their_table() -> None:
    policies = Options.parse({"url": "mysql://u@h", "tables": "d.*", "key": '{"d.t": ["a", "b"]}'}).policies
    assert (policies.of("d.t").key, policies.of("d.u").key) == (("a", "b"), ())
