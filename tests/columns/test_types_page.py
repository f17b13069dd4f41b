from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from headgate.catalog import BINARIES, INTEGERS, TEMPORALS, TEXTS

ROOT = Path(__file__).parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_types_doc", ROOT / "tools" / "generate_types_doc.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_says_what_the_codecs_do() -> None:
    """If this fails: python tools/generate_types_doc.py"""
    assert (ROOT / "docs" / "reference" / "types.md").read_text(encoding="utf-8") == generator().render()


def test_the_page_has_every_type() -> None:
    others = {"float", "double", "decimal", "bit", "year", "json", "enum", "set", "geometry", "vector"}
    known = {*INTEGERS, *TEXTS, *BINARIES, *TEMPORALS, *others}
    assert {column.type for column in generator().COLUMNS} == known
