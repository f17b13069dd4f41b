"""Checks of what a run needs that ask no server."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import PipelineConfig, parse_config
from headgate.errors import ConfigError
from headgate.lake import Place
from headgate.pipeline._checks import _check_stores


def config(path: str, mode: str) -> PipelineConfig:
    source = '[source]\nurl = "mysql://u@h"\ntables = ["shop.*"]\n'
    return parse_config(f'name = "shop"\n{source}[target]\npath = "{path}"\nmode = ["{mode}"]\n')


@pytest.mark.parametrize("mode", ["current", "history"])
def test_modes_that_a_store_does_not_take(tmp_path: Path, mode: str) -> None:
    _check_stores(config(str(tmp_path), mode), ())
    _check_stores(config("s3a://bucket/lake", mode), ())
    with pytest.raises(
        ConfigError, match=r"gs://b/lake: the lake is neither in a local folder nor on S3.*modes changelog"
    ):
        _check_stores(config("gs://b/lake", mode), ())
    routed = [Place("all.orders", path="gs://b/other")]
    with pytest.raises(ConfigError, match="gs://b/other"):
        _check_stores(config(str(tmp_path), mode), routed)


def test_a_changelog_is_appended_to_in_any_store() -> None:
    plain = config("gs://b/lake", "changelog")
    _check_stores(plain, [Place("all.orders")])
    with pytest.raises(ConfigError, match="without shards"):
        _check_stores(plain, [Place("all.orders", shard="one", column="_shard")])
