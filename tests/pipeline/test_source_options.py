"""What `[source]` says reaches the planner and the tasks, by the name of its key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog import TablePatterns
from headgate.config import PipelineConfig, SourceSettings
from headgate.errors import ConfigError
from headgate.lake import Lake
from headgate.pipeline import source_options
from headgate.policies import MaskKey
from headgate.spark import Options

CHANGED: dict[str, Any] = {
    "url": "mysql://v@i", "tables": ("d.*", "!d,x.t"), "password_env": "P", "password_file": "/p",
    "password_command": "p 'a b'", "chunk_rows": 7,
    "max_rows_per_batch": 8, "poll_ms": 99, "retry_seconds": 0, "snapshot_new_tables": False, "snapshot_cut": "start",
    "watermark": "lock", "lock_hold": "read", "lock_wait_seconds": 3, "snapshot_locking_mode": "extended",
    "snapshot_share": 0.123456789, "signal_table": "d.signals", "relay": "https://relay:1", "relay_source": "shop",
    "relay_token_file": "/t", "relay_ca_file": "/c", "relay_fallback": True, "mask_key_env": "K", "mask_key_file": "/k",
}  # fmt: skip
NEEDED = {
    "relay_source": "relay", "relay_token_file": "relay", "relay_ca_file": "relay", "relay_fallback": "relay",
    "lock_hold": "watermark", "lock_wait_seconds": "watermark",
}  # fmt: skip


def parsed(**source: Any) -> Options:
    config = PipelineConfig.model_validate(
        {"name": "shop", "source": {"url": "mysql://u@h", "tables": ["d.*"], **source}, "target": {"path": "/lake"}}
    )
    return Options.parse(source_options(config, Lake.of(config), slots=os.cpu_count() or 1))


@pytest.mark.parametrize("name", SourceSettings.model_fields)
def test_a_key_is_an_option_of_its_name(name: str) -> None:
    more = {other: CHANGED[other] for other in [NEEDED.get(name)] if other is not None}
    expected = TablePatterns.following(CHANGED[name]).patterns if name == "tables" else CHANGED[name]
    assert getattr(parsed(**more, **{name: CHANGED[name]}), name) == expected, "list the new key"


def test_the_defaults_of_both_are_the_same() -> None:
    expected = Options.parse({"url": "mysql://u@h", "tables": "d.*"})
    others = {"snapshot_mode", "tables"}
    assert parsed().model_dump(exclude=others) == {
        **expected.model_dump(exclude=others), "images": "keys", "control_path": "/lake/_headgate/inbox",
    }  # fmt: skip


def test_a_topic_of_signals_has_the_pipelines_key() -> None:
    values = {"name": "shop", "source": {"url": "mysql://u@h", "tables": ["d.*"]}, "target": {"path": "/lake"}}
    for kafka in ({"bootstrap": "h:1", "topic": "t"}, {"bootstrap": "h:1", "topic": "t", "settings_file": "/s"}):
        config = PipelineConfig.model_validate({**values, "signals": {"kafka": kafka}})
        topic = Options.parse(source_options(config, Lake.of(config), slots=1)).signal_topic
        assert topic is not None
        assert topic.model_dump(exclude_none=True) == {**kafka, "key": "shop"}


def test_tasks_know_the_mark_of_the_runs_key(tmp_path: Path) -> None:
    def marked(rules: dict[str, Any]) -> MaskKey | None:
        source = {"url": "mysql://u@h", "tables": ["d.*"], "mask_key_file": str(tmp_path / "key")}
        values = {"name": "shop", "source": source, "target": {"path": "/lake"}, "columns": rules}
        config = PipelineConfig.model_validate(values)
        return Options.parse(source_options(config, Lake.of(config), slots=1)).policies.mask_key

    assert marked({}) == MaskKey(file=str(tmp_path / "key")), "a key that no rule needs is not read"
    (tmp_path / "key").write_text("a key of 16 bytes or more")
    known = marked({"d.*": {"email": "hash"}})
    assert known is not None
    assert (known.mark or "").startswith("hash:")


def test_a_start_is_for_pipelines_and_streams() -> None:
    assert (parsed(start="earliest").start, parsed(snapshot_mode="no_data").start) == ("earliest", "current")
    assert [parsed(snapshot_mode=mode).snapshot_mode for mode in ("no_data", "always")] == ["no_data", "initial"]


def test_both_have_one_range() -> None:
    for value in ("9", "600001"):
        with pytest.raises(ConfigError, match='option "poll_ms": expected a number'):
            Options.parse({"url": "mysql://u@h", "tables": "d.*", "poll_ms": value})
