from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.errors import ConfigError, TargetError
from headgate.lake import Lake, encode_name, short_name, split_table

NAMES = st.text(min_size=1, max_size=20).filter(lambda s: not any(0xD800 <= ord(c) < 0xE000 for c in s))


@given(NAMES)
def test_names_come_back_from_their_segment(name: str) -> None:
    segment = encode_name(name)
    assert unquote(segment) == name
    assert segment.isascii()
    assert not set(segment) & set('/\\:?*"<>| .')
    assert not segment.startswith("_")


@given(NAMES, NAMES)
def test_two_names_never_share_a_segment(left: str, right: str) -> None:
    assert (encode_name(left) == encode_name(right)) == (left == right)


@given(st.text("ая_%x.", min_size=40, max_size=64), st.text("ая_%x.", min_size=40, max_size=64))
@example("т" * 64, "т" * 63 + "я")
@example("т" * 42 + "abc", "т" * 43)
def test_long_names_fit_into_a_file_system(left: str, right: str) -> None:
    for encode, longest in ((encode_name, 255), (short_name, 180)):
        segments = {encode(name) for name in (left, right)}
        assert len(segments) == len({left, right})
        for segment in segments:
            assert len(segment) <= longest
            assert segment.isascii()
            assert re.fullmatch("(%[0-9A-F]{2}|[A-Za-z0-9_~-])*", segment)


def test_the_layout() -> None:
    lake = Lake.at("s3a://bucket/lake/")
    assert not lake.is_local
    assert lake.current("shop.orders") == "s3a://bucket/lake/shop/orders"
    assert lake.changelog("shop.a/b") == "s3a://bucket/lake/_changelog/shop/a%2Fb"
    assert lake.ledger == "s3a://bucket/lake/_headgate/ledger"
    assert lake.current("_headgate.x") == "s3a://bucket/lake/%5Fheadgate/x"


def test_a_folder_that_nothing_can_be_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Lake.at(tmp_path / "not" / "yet" / "lake").check_root()
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "lake"):
        with pytest.raises(TargetError, match=f"{file} is not a folder; choose another target.path"):
            Lake.at(path).check_root()
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    with pytest.raises(TargetError, match=f"{tmp_path}/lake cannot be written: this user may not write to {tmp_path}$"):
        Lake.at(tmp_path / "lake").check_root()


def test_local_paths_are_made_absolute() -> None:
    assert Lake.at("lake").path == str(Path.cwd() / "lake")
    assert Lake.at("file:///tmp/x").path == "/tmp/x"
    assert Lake.at("lake").is_local


@pytest.mark.parametrize("name", ["orders", ".orders", "shop.", ""])
def test_a_table_needs_a_database(name: str) -> None:
    with pytest.raises(ConfigError, match=r"db\.table"):
        split_table(name)


def test_the_first_dot_separates() -> None:
    assert split_table("shop.a.b") == ("shop", "a.b")
