"""``@pytest.mark.mysql``: which tests are skipped on which server."""

from __future__ import annotations

import pytest

from headgate.mysql import Version
from tests import fix_mysql
from tests.fix_mysql import unmet


@pytest.mark.parametrize(
    ("version", "requirement", "met"),
    [
        ((8, 0, 30), ">= 8.0.30", True),
        ((8, 0, 29), ">= 8.0.30", False),
        ((9, 0, 0), ">= 9.0", True),
        ((8, 4, 5), ">= 9.0", False),
        ((9, 6, 0), "< 9.6", False),
        ((9, 5, 3), "< 9.6", True),
        (None, ">= 9.9", True),  # the server will be fetched
    ],
)
def test_versions(version: Version | None, requirement: str, met: bool) -> None:
    reason = unmet(version, requirement, "tags")
    assert (reason == "") == met
    if not met and version is not None:
        assert reason == f"needs MySQL {requirement} (tags); this is {'.'.join(map(str, version))}"


def test_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fix_mysql, "_has_plugin", {"here": True, "clone": False}.__getitem__)
    assert unmet((9, 7, 4), plugin="here") == ""
    assert unmet((9, 7, 4), plugin="clone") == "needs the plugin or component clone, which this mysqld lacks"


def test_a_requirement_that_cannot_be_read() -> None:
    with pytest.raises(AssertionError, match=r"'8\.0' is not like"):
        unmet((8, 0, 1), "8.0")
