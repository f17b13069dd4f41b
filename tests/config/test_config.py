"""The pipeline file: what is accepted, and one clear line for every mistake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, TypeAdapter

from headgate.config import ConfigFile, PipelineConfig, _explain, load_config, parse_config
from headgate.errors import ConfigError
from headgate.policies import DEFAULT, Hook, Policies
from tests.logged import logged_here
from tools import generate_configuration

GOOD = """
name = "shop"
[source]
url = "mysql://headgate@127.0.0.1:3306"
tables = ["shop.*", "!shop.tmp_*"]
poll_ms = 500
[target]
path = "./lake"
mode = "current"
[spark]
master = "local[2]"
"spark.ui.enabled" = true
sql.shuffle.partitions = 4
[tables."shop.orders"]
schema_changes = "strict"
"""

TEXT = 'name = "p"\n[source]\nurl = "mysql://u@h"\ntables = ["a.*"]\n[target]\npath = "/lake"\n'


def with_source(*lines: str) -> str:
    return GOOD.replace("poll_ms = 500", "\n".join(lines))


@pytest.mark.parametrize(
    ("lines", "position"),
    [
        ([], None),
        (['start = "snapshot"'], None),
        (['start = "snapshot"', 'snapshot_mode = "always"'], None),
        (['start = "earliest"'], "earliest"),
        (['snapshot_mode = "no_data"'], "current"),
        (['start = "2026-01-02T03:04:05Z"', 'snapshot_mode = "no_data"'], "2026-01-02T03:04:05Z"),
    ],
)
def test_where_a_pipeline_begins(lines: list[str], position: str | None) -> None:
    assert parse_config(with_source(*lines)).source.first_position == position


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['start = "snapshot"', 'snapshot_mode = "no_data"'], 'use "current"'),
        (['start = "earliest"', 'snapshot_mode = "when_needed"'], "start is for snapshot_mode no_data and initial"),
        (['start = "earliest"', 'snapshot_mode = "initial_only"'], "start is for snapshot_mode no_data and initial"),
        (['start = "earliest"', 'snapshot_cut = "start"'], "do not go together"),
    ],
)
def test_starts_that_mean_nothing(lines: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(with_source(*lines))


def test_a_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipeline.toml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    config = load_config(tmp_path / "pipeline.toml")
    assert config.source.tables == ("shop.*", "!shop.tmp_*")
    assert config.target.path == str(tmp_path / "lake")
    assert config.target.mode == ("current",)
    assert config.spark == {"spark.master": "local[2]", "spark.ui.enabled": "true", "spark.sql.shuffle.partitions": "4"}
    assert config.tables["shop.orders"].schema_changes == "strict"


def test_both_modes_in_a_fixed_order() -> None:
    config = parse_config(GOOD.replace('mode = "current"', 'mode = ["changelog", "current"]'))
    assert config.target.mode == ("current", "changelog")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("poll_ms = 500", "pol_ms = 500", r"unknown key source\.pol_ms; did you mean poll_ms\?"),
        (
            "poll_ms = 500",
            'password = "secret"',
            r"unknown key source\.password; a file holds no password: set HEADGATE_",
        ),
        (
            "poll_ms = 500",
            '"table.include.list" = "a"',
            r"unknown key source\.table\.include\.list; docs/how-to/from-debezium\.md",
        ),
        ('["shop.*", "!shop.tmp_*"]', '"shop.*"', r"source\.tables: expected a list, such as"),
        (
            "poll_ms = 500",
            'poll_ms = "often"',
            r'source\.poll_ms: expected a whole number, without quotes, not "often"$',
        ),
        (
            "poll_ms = 500",
            'relay_fallback = "maybe"',
            r'relay_fallback: expected true or false, without quotes, not "maybe"$',
        ),
        ("headgate@127.0.0.1:3306", "headgate@db:mysql", r"source\.url: expected mysql://user@host:3306"),
        ("headgate@127.0.0.1:3306", "headgate@db..example:3306", r"source\.url: expected mysql://user@host:3306"),
        (":3306", ":3306/shop", r"source\.url: a URL names no database"),
        ('name = "shop"', 'name = "shop"\ncolumns."a.b.c" = "exclude"', r"columns\.a\.b\.c: expected a section"),
        ('name = "shop"', "", "name is missing"),
        ('name = "shop"', 'name = "a/b"', r'name: "a/b" is not the pipeline\'s name: letters, digits'),
        ("[source]", "[sorce]", r"unknown key sorce; did you mean source\?"),
        ('[tables."shop.orders"]', "[tables.shop.orders]", r'in quotes: \[tables\."shop\.orders"\]'),
        ("headgate@", "headgate:secret@", "leave the password out"),
        ("mysql://", "postgres://", "mysql://user@host"),
        ('"shop.*", ', '"orders", ', r"source\.tables.*db\.table"),
        ('"shop.*", "!shop.tmp_*"', '"!shop.*"', r"source\.tables.*at least one"),
        ("poll_ms = 500", 'password_env = "a"\npassword_file = "b"', "both set"),
        ("poll_ms = 500", 'password_command = "a"\npassword_file = "b"', "password_file and password_command are both"),
        ("poll_ms = 500", 'password_command = "secret \'b"', r"source\.password_command.*No closing quotation"),
        ("poll_ms = 500", 'password_command = " "', r"source\.password_command: expected a program with its arguments"),
        (
            "poll_ms = 500",
            'password = "secret"',
            r"set HEADGATE_PASSWORD, password_env, password_file or password_comm",
        ),
        ("poll_ms = 500", 'password_env = "a b"', r"source\.password_env.*not its value"),
        (
            "poll_ms = 500",
            "chunk_rows = 0",
            r"source\.chunk_rows: expected a number greater than or equal to 1, not 0$",
        ),
        ("poll_ms = 500", "snapshot_share = nan", r"source\.snapshot_share: expected a finite number"),
        (":3306", ":3306/?password=secret", "leave the password out"),
        ('schema_changes = "strict"', 'schema_change = "strict"', r"tables\.shop\.orders\.schema_change; did you mean"),
        ('schema_changes = "strict"', 'keys = ["id"]', r"unknown key tables\.shop\.orders\.keys; did you mean key\?"),
        ('schema_changes = "strict"', "key = []", r"tables\.shop\.orders\.key: expected a list of 1 to 32 columns"),
        ('schema_changes = "strict"', 'key = ["a", "A"]', "key names a column twice"),
        (
            'schema_changes = "strict"',
            'key = ["a"]\nforeign_keys = "accept"',
            "rows that change unseen are not counted",
        ),
        ('schema_changes = "strict"', 'key = ["a"]\nskip = ["update"]', "needs a table with exactly the source's rows"),
        ('schema_changes = "strict"', 'key = ["a"]\ndeletes = "mark"', "needs a table with exactly the source's rows"),
        ('[tables."shop.orders"]', "[tables.orders]", r"tables: 'orders' is not a table"),
        (
            'name = "shop"',
            'name = "shop"\nzzz = 1',
            r"unknown key zzz \(known there: columns, name, notifications, routes, schema_changes,",
        ),
        ('mode = "current"', 'mode = "copies"', r'target\.mode.*"current", "history", "changelog"'),
        ('path = "./lake"', "", r"target\.path is missing"),
        ('schema_changes = "strict"', 'time = "days"', r"tables\.shop\.orders\.time.*'microseconds'"),
        ("strict", "loose", r"tables\.shop\.orders\.schema_changes"),
        ('name = "shop"', "name =", "not TOML"),
        ('name = "shop"', 'name = "shop"\nnotifications.webhook = {url = "ftp://x"}', r"webhook\.url: expected http"),
        ('name = "shop"', 'name = "shop"\nnotifications.webhook = {url = "http://u:secret@x"}', "token_file"),
        (
            'name = "shop"',
            'name = "shop"\nnotifications.webhook = {url = "http://x", tokenfile = "t"}',
            r"unknown key notifications\.webhook\.tokenfile; did you mean token_file\?",
        ),
        ('name = "shop"', 'name = "shop"\nnotifications.kafka = {topic = "t"}', r"kafka\.bootstrap is missing: host"),
        ('schema_changes = "strict"', 'condition = ""', r"tables\.shop\.orders\.condition"),
        ('schema_changes = "strict"', 'condition = "a"\nrows = "b = 1"', "rows and condition are both set"),
        ('schema_changes = "strict"', 'hook = "hooks"', r"'hooks' is not a function; expected module:function"),
        ('schema_changes = "strict"', 'hook = "a-b:f"', "is not a function"),
        ('schema_changes = "strict"', 'hook = "m:f@a b"', "'m:f@a b' is not a function"),
        ("poll_ms = 500", 'relay = "relay1:11115"', r"source\.relay: expected http://host:port"),
        ("poll_ms = 500", 'relay = "http://u:secret@r:1"', r"source\.relay: expected http://host:port"),
        ("poll_ms = 500", 'relay = "http://relay..example:11115"', r"source\.relay: expected http://host:port"),
        ("poll_ms = 500", 'relay = "http://relay1:11115/log"', r"source\.relay: expected http://host:port"),
        ("poll_ms = 500", 'relay_source = "a"', "source: relay_source needs relay, http"),
        ("poll_ms = 500", 'lock_hold = "read"', 'source: lock_hold needs watermark = "lock"'),
        ("poll_ms = 500", "lock_wait_seconds = 3", "source: lock_wait_seconds needs locks"),
        (
            "poll_ms = 500",
            'lock_wait_seconds = 3\nsnapshot_locking_mode = "none"',
            "source: lock_wait_seconds needs locks",
        ),
        (
            "poll_ms = 500",
            'watermark = "signal-table"\nsignal_table = "a.s"\nlock_hold = "read"',
            'source: lock_hold needs watermark = "lock"',
        ),
        (
            "[spark]",
            '[schema_changes]\ndrop_column = "stop"\ndropped_columns = "keep"\n[spark]',
            'schema_changes: dropped_columns = "keep" is for drop_column = "evolve", not "stop"',
        ),
        (
            "[spark]",
            '[target.kafka]\nbootstrap = "h:1"\nregistry_auth_env = "A"\n[spark]',
            'target.kafka: registry_auth_env is for format = "avro", not "json"',
        ),
        ("[spark]", '[ui]\nhost = "::1"\n[spark]', "ui: host needs port: without it there is no page"),
        ("[spark]", '[ui]\ntoken_file = "t"\n[spark]', "ui: token_file needs port: without it there is no page"),
        (
            "poll_ms = 500",
            'relay = "http://r:1"\nwatermark = "signal-table"\nsignal_table = "a.b"',
            "do not go together",
        ),
        ("poll_ms = 500", 'snapshot_mode = "never"', r"source\.snapshot_mode.*'when_needed'"),
        ("[spark]", '[spark]\njars.packages = ["a:b:1"]', "packages: expected text, a number, true"),
        ("[spark]", '[spark]\n"spark.master" = "b"', r"spark\.master is set twice"),
    ],
)
def test_mistakes_are_one_clear_line(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_config(GOOD.replace(old, new, 1))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_all_mistakes_at_once() -> None:
    text = GOOD.replace("poll_ms = 500", 'pol_ms = 5\nchunk_rows = 0\nurl = "mysql://u:hunter2@h"\nrelay_source = "a"')
    text = text.replace('name = "shop"', "").replace('url = "mysql://headgate@127.0.0.1:3306"\n', "")
    text = text.replace('"current"', '"copies"').replace('"strict"', '"strict"\nkey = ["a", "A"]')
    with pytest.raises(ConfigError) as caught:
        parse_config(text, where="shop.toml")
    remedy = "leave the password out of the URL: set HEADGATE_PASSWORD, password_env, password_file or password_command"
    assert [*caught.value.lines] == [
        "shop.toml: unknown key source.pol_ms; did you mean poll_ms?",
        "shop.toml: name is missing: the pipeline's name: letters, digits, _, . and -",
        f"shop.toml: source.url: {remedy}",
        "shop.toml: source.chunk_rows: expected a number greater than or equal to 1, not 0",
        'shop.toml: target.mode: expected "current", "history", "changelog", "kafka" or a list of them, not "copies"',
    ]
    assert str(caught.value).startswith(
        "shop.toml: 5 mistakes: (1) unknown key source.pol_ms; did you mean poll_ms?; (2)"
    )


def test_values_that_do_not_go_together_are_reported_beside_wrong_ones() -> None:
    text = GOOD.replace("poll_ms = 500", 'poll_ms = 1\npassword_env = "a"\npassword_file = "b"\nskip = ["delete"]')
    text = text.replace('"strict"', '"strict"\nkey = ["a", "A"]').replace('"current"', '"history"')
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert [line.removeprefix("pipeline.toml: ") for line in caught.value.lines] == [
        "source.poll_ms: expected a number greater than or equal to 10, not 1",
        'key and target.mode "history" do not go together: versions of rows do not prove a key',
        'skip and target.mode "history" do not go together: a history has every change',
        "source: password_env and password_file are both set; keep one",
        "tables.shop.orders: key names a column twice",
    ]
    with pytest.raises(ConfigError) as caught:
        parse_config(text.replace('["delete"]', "1"))
    assert "skip and" not in str(caught.value), "whether a wrong value goes together with others is not known"
    with pytest.raises(ValueError, match="password_env and password_file are both set"):
        PipelineConfig.model_validate(
            {
                "name": "p",
                "source": {"url": "mysql://u@h", "tables": ["a.*"], "password_env": "A", "password_file": "b"},
                "target": {"path": "/lake"},
            }
        )


def test_values_that_may_be_secrets_are_not_shown() -> None:
    for old, new in (
        ("headgate@127.0.0.1:3306", "hunter2@h/x"),
        ("poll_ms = 500", "password_env = 'hunter2!'"),
        ("poll_ms = 500", "passwort = 'hunter2'"),
        ("poll_ms = 500", "poll_ms = 'http://u:hunter2@h'"),
        ('"spark.ui.enabled" = true', "hadoop.fs.s3a.secret.key = ['hunter2']"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse_config(GOOD.replace(old, new))
        assert "hunter2" not in str(caught.value)


def test_relative_paths_start_at_the_working_directory_and_uris_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "pipeline.toml").write_text(GOOD.replace("[target]", 'password_file = "pw"\n[target]'))
    config = load_config("etc/pipeline.toml")
    assert config.target.path == str(tmp_path / "lake")
    assert config.source.password_file == str(tmp_path / "pw")
    for uri in ("s3a://bucket/lake", "file:/srv/lake", "/srv/lake"):
        assert parse_config(GOOD.replace("./lake", uri)).target.path == uri


def sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        section = _explain._model_in(field.annotation)
        if section is not None:
            yield from sections(section)


def test_every_path_is_made_absolute() -> None:
    for model in sections(PipelineConfig):
        for name, field in model.model_fields.items():
            if name == "path" or name.endswith("_file"):
                assert field.annotation is not None
                kind = TypeAdapter(field.annotation)
                assert kind.validate_python("x", context={"folder": Path("/etc")}) == "/etc/x", (
                    f"{model.__name__}.{name}"
                )
    avro = '[target.kafka]\nbootstrap = "h:1"\nformat = "avro"\nregistry = "http://r"\nregistry_ca_file = "../ca.pem"\n'
    config = parse_config(TEXT + 'mode = "kafka"\n' + avro, folder=Path("/etc/headgate"))
    assert config.target.kafka is not None
    assert config.target.kafka.registry_ca_file == "/etc/ca.pem"
    plain = PipelineConfig.model_validate(
        {**config.model_dump(by_alias=True), "ui": {"port": 1, "token_file": "token"}}
    )
    assert plain.ui.token_file == "token", "no file, so no folder"


def test_policies_of_a_table() -> None:
    tables = parse_config(GOOD + '[tables."shop.items"]\n').tables
    assert (tables["shop.orders"].schema_changes, tables["shop.items"].schema_changes) == ("strict", "evolve")


@pytest.mark.parametrize("mode", ['"changelog"', '"kafka"\nkafka.bootstrap = "h:1"'])
def test_policies_of_alters_need_tables_that_alters_change(mode: str) -> None:
    text = GOOD + '[schema_changes]\ndrop_column = "stop"\n'
    assert parse_config(text).schema_changes.drop_column == "stop"
    alone = text.replace('mode = "current"', f"mode = {mode}").replace('deletes = "mark"', "")
    with pytest.raises(ConfigError) as caught:
        parse_config(alone)
    add = 'add "current" or "history" to target.mode'
    assert [line.removeprefix("pipeline.toml: ") for line in caught.value.lines] == [
        f"[schema_changes] is about current tables and histories: {add}",
        f'schema_changes = "strict" in [tables."shop.orders"] is about its current table or history: {add}',
    ]
    parse_config(alone.replace('"stop"', '"evolve"').replace('"strict"', '"evolve"'))


def test_rows_are_policies_of_a_table_that_is_no_signal_table() -> None:
    text = GOOD.replace('schema_changes = "strict"', "rows = \"country = 'DE'\"")
    policies = parse_config(text).policies()
    assert (policies.of("shop.orders").rows, policies.of("shop.items").rows) == ("country = 'DE'", "")
    assert policies.as_options()["rows"] == '{"shop.orders": "country = \'DE\'"}'
    with pytest.raises(
        ConfigError, match=r'rows in \[tables."shop.orders"\] is for a signal table, whose rows are sig'
    ):
        parse_config(text.replace("poll_ms = 500", 'signal_table = "shop.orders"'))


def test_hooks_are_policies_of_a_table_that_is_no_signal_table() -> None:
    text = GOOD.replace('schema_changes = "strict"', 'hook = "my.hooks:f"')
    policies = parse_config(text).policies()
    assert (policies.of("shop.orders").hook, policies.of("shop.items").hook) == (Hook("my.hooks:f", "1"), None)
    assert policies.as_options()["hook"] == '{"shop.orders": "my.hooks:f@1"}'
    second = parse_config(text.replace('f"', 'f@2024-01-02"')).policies().of("shop.orders").hook
    assert second is not None
    assert second.spelled == "my.hooks:f@2024-01-02"
    with pytest.raises(ConfigError, match=r'hook in \[tables."shop.orders"\] is for a signal table'):
        parse_config(text.replace("poll_ms = 500", 'signal_table = "shop.orders"'))


def test_skipped_operations_are_a_tables_own_or_the_sources() -> None:
    text = GOOD.replace("[source]", '[source]\nskip = ["truncate", "insert"]') + '[tables."shop.items"]\nskip = []\n'
    config = parse_config(text)
    assert (config.skips("shop.orders"), config.skips("shop.items")) == (("insert", "truncate"), ())
    assert (config.keeps_removed("shop.orders"), config.keeps_removed("shop.items")) == (True, False)
    with pytest.raises(ConfigError, match=r"source\.skip\[1\].*'truncate'"):
        parse_config(text.replace('"insert"', '"drop"'))
    with pytest.raises(ConfigError, match=r"skip in \[source\] leaves out what deletes = \"mark\" marks"):
        parse_config(text.replace("[target]", '[target]\ndeletes = "mark"'))
    parse_config(text.replace('"truncate", ', "").replace("[target]", '[target]\ndeletes = "mark"'))
    with pytest.raises(ConfigError, match=r'skip and target\.mode "history" do not go together'):
        parse_config(text.replace('mode = "current"', 'mode = "history"'))
    dropping = text.replace('[tables."shop.items"]', '[tables."shop.items"]\nwindow = "drop"')
    assert parse_config(dropping).skips("shop.items") == ()
    with pytest.raises(ConfigError, match='window = "drop" leaves rows to the inserts and updates that follow, which'):
        parse_config(dropping.replace("skip = []", ""))


def test_a_chosen_key_is_not_for_histories() -> None:
    text = GOOD.replace('schema_changes = "strict"', 'key = ["a"]')
    assert parse_config(text).policies().of("shop.orders").key == ("a",)
    with pytest.raises(ConfigError, match=r'key and target\.mode "history" do not go together'):
        parse_config(text.replace('mode = "current"', 'mode = "history"'))


def test_watermarks() -> None:
    source = parse_config(GOOD).source
    assert (source.watermark, source.lock_hold, source.snapshot_locking_mode) == ("gtid", "setup", None)
    section = '[source]\nwatermark = "lock"\nlock_hold = "read"\nsnapshot_locking_mode = "none"\nsnapshot_cut = "start"'
    changed = parse_config(GOOD.replace("[source]", section)).source
    assert (changed.watermark, changed.lock_hold, changed.snapshot_locking_mode) == ("lock", "read", "none")
    assert changed.snapshot_cut == "start"
    with pytest.raises(ConfigError, match="lock_wait_seconds"):
        parse_config(GOOD.replace("[source]", "[source]\nlock_wait_seconds = 0"))


def test_the_window_of_a_table_is_its_own_or_the_sources() -> None:
    config = parse_config(GOOD)
    assert config.policies().of("shop.orders").window == config.source.policies()["window"] == "rewind"
    changed = parse_config(
        GOOD.replace("[source]", '[source]\nwindow = "keep"') + '[tables."a.b"]\nwindow = "rewind"\n'
    )
    policies = changed.policies()
    assert [policies.of(table).window for table in ("shop.orders", "a.b", "a.c")] == ["keep", "rewind", "keep"]
    with pytest.raises(ConfigError, match="rewind"):
        parse_config(GOOD.replace("[source]", '[source]\nwindow = "skip"'))


def test_policies_of_values() -> None:
    text = GOOD.replace("[target]", 'bit = "binary"\nzero_dates = "null"\n[target]') + 'zero_dates = "text"\n'
    policies = parse_config(text).policies()
    assert policies.of("shop.orders") == Policies(zero_dates="text", bit="binary")
    assert policies.of("shop.items") == Policies(zero_dates="null", bit="binary")
    assert parse_config(GOOD).policies() == DEFAULT


def test_json_is_a_key_though_pydantic_has_a_method_of_that_name() -> None:
    text = GOOD.replace("[target]", 'json = "variant"\n[target]') + 'json = "string"\n'
    policies = parse_config(text).policies()
    assert (policies.of("shop.items").json, policies.of("shop.orders").json) == ("variant", "string")
    with pytest.raises(ConfigError, match=r"unknown key source\.jsom; did you mean json\?"):
        parse_config(GOOD.replace("[target]", 'jsom = "variant"\n[target]'))


def test_deletes_are_marked_for_all_tables_or_for_one() -> None:
    one = parse_config(GOOD.rstrip() + '\ndeletes = "mark"\n')
    assert (one.marks_deletes("shop.items"), one.marks_deletes("shop.orders")) == (False, True)
    target = GOOD.replace("[target]", '[target]\ndeletes = "mark"')
    others = parse_config(target.rstrip() + '\ndeletes = "remove"\n')
    assert (others.marks_deletes("shop.items"), others.marks_deletes("shop.orders")) == (True, False)
    assert not parse_config(GOOD).marks_deletes("shop.orders")
    with pytest.raises(ConfigError, match=r'deletes = "mark" in \[target\] is about current tables'):
        parse_config(TEXT + 'mode = "changelog"\ndeletes = "mark"\n')


def test_the_page_says_what_the_models_say() -> None:
    written = generate_configuration.PAGE.read_text(encoding="utf-8")
    assert written == generate_configuration.page(), "run python tools/generate_configuration.py"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.toml cannot be read.*headgate init"):
        load_config(tmp_path / "x.toml")


def test_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(GOOD, encoding="utf-8-sig")
    assert load_config(file) == parse_config(GOOD)


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(TEXT)
    file = ConfigFile(path)
    assert file.load_change() is None
    assert file.load_change(requested=True) is None, "it says the same"
    path.write_text(TEXT.replace('"a.*"', '"a.*", "b.*"'))
    changed = file.load_change()
    assert changed is not None
    assert changed.source.tables == ("a.*", "b.*")
    file.take(changed)
    assert file.load_change() is None
    assert file.config is changed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "name is missing"),
        (TEXT.replace("a.*", "a"), "is not a table pattern"),
        (TEXT.replace("/lake", "/other/lake"), "target changed: restart the pipeline"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_followed_is_refused_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None, message: str
) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(TEXT)
    file = ConfigFile(path)
    before = file.config
    path.write_text(text) if text is not None else path.unlink()
    assert file.load_change() is None
    assert message in caplog.text
    caplog.clear()
    assert file.load_change() is None
    assert not logged_here(caplog), "said once"
    assert file.config is before


def test_properties_of_tables() -> None:
    """Those of a table come first; numbers and booleans become texts."""
    text = GOOD.replace("[spark]", "properties = { team = 'sales', tier = 1 }\n[spark]")
    text += (
        'properties = { tier = 2, audited = true, "delta.dataSkippingNumIndexedCols" = -1 }\ncluster_by = ["day", "id"]'
    )
    config = parse_config(text)
    assert config.table_properties("shop.other") == {"team": "sales", "tier": "1"}
    orders = {"team": "sales", "tier": "2", "audited": "true", "delta.dataSkippingNumIndexedCols": "-1"}
    assert config.table_properties("shop.orders") == orders
    assert (config.clustering("shop.orders"), config.clustering("shop.other")) == (("day", "id"), ())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("headgate.key", "headgate's own"),
        ("delta.columnMapping.mode", "a table gets column mapping if the name of a column needs it"),
        ("delta.enableDeletionVectors", "tables have deletion vectors where headgate needs them"),
        ("delta.logRetentionDuration", "headgate removes old files, by target.retention_hours"),
        ("delta.checkpointInterval", "headgate writes the log's checkpoints"),
        ("delta.checkpoint.writeStatsAsStruct", "headgate writes the log's checkpoints"),
        ("delta.setTransactionRetentionDuration", "headgate's transaction markers must stay"),
        ("delta.appendOnly", "headgate also deletes rows"),
        ("delta.enableChangeDataFeed", 'add "changelog" to target.mode'),
        ("delta.dataSkippingStatsColumns", "set delta.dataSkippingNumIndexedCols"),
        ("delta.feature.clustering", "the features that a table requires follow from its columns"),
        ("delta.constraints.positive", "headgate's writer does not support it"),
        ("comment", "Spark SQL reserves this name"),
        ("a b", "use letters, digits"),
        ("", "use letters, digits"),
    ],
)
def test_properties_that_no_table_can_have(name: str, reason: str) -> None:
    for text in (
        GOOD.replace("[spark]", f'properties = {{ "{name}" = "1" }}\n[spark]'),
        f'{GOOD}properties."{name}" = 1',
    ):
        with pytest.raises(ConfigError) as caught:
            parse_config(text)
        assert reason in caught.value.message


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('properties = { "delta.dataSkippingNumIndexedCols" = "many" }', "expected a number of columns, or -1 for all"),
        ("properties = { team = [] }", "properties.team"),
        (f'properties = {{ team = "{"x" * 4001}" }}', "team has more than 4000 characters"),
        ('cluster_by = ["a", "b", "c", "d", "e"]', "expected at most 4 columns"),
        ('cluster_by = ["a", "A"]', "expected the names of different columns"),
        ('cluster_by = [""]', "expected the names of different columns"),
    ],
)
def test_layouts_that_no_table_can_have(lines: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{GOOD}{lines}")
    assert message in caught.value.message


def test_only_tables_with_rows_are_clustered() -> None:
    text = f'{GOOD}cluster_by = ["id"]'
    for mode in ('"history"', '["current", "changelog"]'):
        assert parse_config(text.replace('mode = "current"', f"mode = {mode}")).clustering("shop.orders") == ("id",)
    with pytest.raises(ConfigError, match=r'cluster_by in \[tables."shop.orders"\] is about its current table'):
        parse_config(text.replace('mode = "current"', 'mode = "changelog"'))
