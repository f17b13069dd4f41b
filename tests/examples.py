"""The examples in the docstrings of ``import headgate``, run as they stand there; only places are others."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Mapping
from typing import Any

import headgate

NAMES = [name for name in headgate.__all__ if not name.startswith("_")]
ON_A_SERVER = frozenset({"MySQLCDCDataSource", "Pipeline", "expand", "read_as_of", "register", "verify"})
"""Their examples need MySQL and Spark."""

PIPELINE = """\
name = "shop"
[source]
url = "mysql://headgate@db:3306"
password_file = "/run/secrets/mysql"
tables = ["shop.*", "!shop.tmp_*"]
[target]
path = "/data/lake"
"""
"""The pipeline.toml that the examples speak of."""


def examples(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(getattr(headgate, name)) or "")


def run_examples(name: str, places: Mapping[str, str], **names: Any) -> None:
    """Run the examples of a public name from top to bottom.

    :param places: what the documentation names → what is here.
    """
    text = placed(inspect.getdoc(getattr(headgate, name)) or "", places)
    test = doctest.DocTestParser().get_doctest(text, {"headgate": headgate, **names}, name, None, None)
    output: list[str] = []
    result = doctest.DocTestRunner().run(test, out=output.append)
    assert (result.failed, result.attempted > 0) == (0, True), "".join(output)


def placed(text: str, places: Mapping[str, str]) -> str:
    for there, here in places.items():
        text = text.replace(there, here)
    return text
