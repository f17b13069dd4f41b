"""JSON text as VARIANT, read back by the specification (Apache Parquet's VariantEncoding.md)."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delta import VARIANT, _variant, to_variant
from headgate.errors import DecodeError
from tests.fix_documents import NASTY, Number, document_texts, documents, render


@pytest.fixture(autouse=True, scope="module")
def deep() -> Iterator[None]:
    """Room for the reader below, which calls itself."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    yield
    sys.setrecursionlimit(before)


class Reader:
    """A VARIANT in Python: a number as ``(type, value)``. Refuses what takes more bytes than it needs."""

    def __init__(self, variant: dict[str, bytes]) -> None:
        self.value, metadata = variant["value"], variant["metadata"]
        width = (metadata[0] >> 6) + 1
        assert metadata[0] & 0x3F == 1, "version 1, not sorted"
        count = int.from_bytes(metadata[1 : 1 + width], "little")
        ends = self._numbers(metadata, 1 + width, count + 1, width)
        first = 1 + width * (count + 2)
        assert width == _width(max(count, ends[-1]))
        assert first + ends[-1] == len(metadata)
        self.keys = [metadata[first + a : first + b].decode() for a, b in pairwise(ends)]
        assert len(set(self.keys)) == count

    def read(self) -> Any:
        value, end = self._at(0)
        assert end == len(self.value)
        return value

    @staticmethod
    def _numbers(data: bytes, at: int, count: int, width: int) -> list[int]:
        return [int.from_bytes(data[at + i * width : at + (i + 1) * width], "little") for i in range(count)]

    def _at(self, at: int) -> tuple[Any, int]:
        kind, header = self.value[at] & 3, self.value[at] >> 2
        if kind == 1:
            return self.value[at + 1 : at + 1 + header].decode(), at + 1 + header
        if kind == 0:
            return self._primitive(header, at + 1)
        return self._container(at, header, is_object=kind == 2)

    def _primitive(self, kind: int, at: int) -> tuple[Any, int]:
        if kind <= 2:
            return [None, True, False][kind], at
        if kind <= 6:
            size = 1 << kind - 3
            return (f"int{size}", int.from_bytes(self.value[at : at + size], "little", signed=True)), at + size
        if kind == 7:
            return ("double", struct.unpack_from("<d", self.value, at)[0]), at + 8
        if kind == 16:
            size = int.from_bytes(self.value[at : at + 4], "little")
            assert size > 63
            return self.value[at + 4 : at + 4 + size].decode(), at + 4 + size
        size = {8: 4, 9: 8, 10: 16}[kind]
        unscaled = int.from_bytes(self.value[at + 1 : at + 1 + size], "little", signed=True)
        return (f"decimal{size}", unscaled, self.value[at]), at + 1 + size

    def _container(self, at: int, header: int, *, is_object: bool) -> tuple[Any, int]:
        large = header >> (4 if is_object else 2) & 1
        width, key_width = (header & 3) + 1, (header >> 2 & 3) + 1 if is_object else 0
        count_width = 4 if large else 1
        count = int.from_bytes(self.value[at + 1 : at + 1 + count_width], "little")
        assert large == (count > 255)
        at += 1 + count_width
        keys = self._numbers(self.value, at, count, key_width)
        at += count * key_width
        offsets = self._numbers(self.value, at, count + 1, width)
        at += (count + 1) * width
        assert width == _width(offsets[-1])
        assert not is_object or key_width == _width(max(keys, default=0))
        values, ends = {}, {}
        for offset in offsets[:-1]:
            values[offset], end = self._at(at + offset)
            ends[offset] = end - at
        assert [0, *sorted(ends.values())] == [*sorted(ends), offsets[-1]], "the values lie side by side"
        end = at + offsets[-1]
        if not is_object:
            return [values[offset] for offset in offsets[:-1]], end
        names = [self.keys[key] for key in keys]
        assert names == sorted(names, key=lambda name: name.encode("utf-16-be"))
        return {name: values[offset] for name, offset in zip(names, offsets[:-1], strict=True)}, end


def _width(value: int) -> int:
    return max(1, (value.bit_length() + 7) // 8)


def read(text: str) -> Any:
    (variant,) = to_variant(pa.array([text]), "j").to_pylist()
    return Reader(variant).read()


def model(document: Any) -> Any:
    """What a document is as a VARIANT."""
    if isinstance(document, list):
        return [model(one) for one in document]
    if isinstance(document, dict):
        return {key: model(one) for key, one in document.items()}
    return number(document) if isinstance(document, Number) else document


def number(text: str) -> tuple[Any, ...]:
    if text.lstrip("-").isdigit() and -(1 << 63) <= int(text) < 1 << 63:
        size = next(size for size in (1, 2, 4, 8) if -(1 << size * 8 - 1) <= int(text) < 1 << size * 8 - 1)
        return f"int{size}", int(text)
    if "e" not in text.lower():
        digits, scale = Decimal(text).as_tuple().digits, len(text.partition(".")[2])
        most = max(len(digits), scale)
        if most <= 38:
            size = next(size for size, limit in ((4, 9), (8, 18), (16, 38)) if most <= limit)
            return f"decimal{size}", int(text.replace(".", "")), scale
    return "double", float(text)


@given(documents, st.booleans(), st.sampled_from(["", " ", "\r\n\t"]))
def test_a_document_is_read_back(document: Any, escaped: bool, blank: str) -> None:
    assert read(render(document, escaped=escaped, blank=blank)) == model(document)


@given(st.lists(st.one_of(st.none(), document_texts), max_size=8), st.data())
def test_rows_are_independent(texts: list[str | None], data: st.DataObject) -> None:
    """Whatever their neighbours are, where the array begins, and how it is divided."""
    start = data.draw(st.integers(0, len(texts)))
    array = pa.array(texts, pa.string()).slice(start)
    alone = [None if text is None else to_variant(pa.array([text]), "j")[0].as_py() for text in texts[start:]]
    variants = to_variant(array, "j")
    variants.validate(full=True)
    assert variants.type.equals(VARIANT)
    assert variants.to_pylist() == alone
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_variant, "_CALL_BYTES", data.draw(st.integers(0, 40)))
        assert to_variant(array, "j").to_pylist() == alone


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_limits(text: str) -> None:
    assert read(text) == model(json.loads(text, parse_int=Number, parse_float=Number))


def test_what_grows_most_has_room() -> None:
    """Arrays in arrays, with offsets of three bytes."""
    inner = '"' + "x" * (1 << 16) + '"'
    for text in ("[" * 999 + "1e1" + "]" * 999, "[" * 999 + inner + "]" * 999, '{"":' * 500 + "[]" + "}" * 500):
        read(text)
    read(f"[{','.join(['[[[[1e1]]]]'] * 50_000)}]")


BROKEN = [
    *("", " ", "nul", "nulL", "xull", "tru", "False", "01", "+1", "1.", ".5", "-", "1e", "1e+", "--1", "NaN", "1 2"),
    *('"', '"a', '"\t"', '"\\x"', '"\\u12"', '"\\u12g4"', '"\\ud83d"', '"\\ude00"', '"\\ud83dx"', '"\\ud83d\\u0041"'),
    *("{", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1}", '{"a"}', '{"a":}', '{"a":1,}', "{a:1}", '{"a" 1}'),
    *("'a'", "{1:1}", "1]", '{"a":1]', "[" * 1001 + "]" * 1001, "[" * 5000, '{"":' * 5000),
    *('{"a":1,"a":2}', '{"a":1,"b":2,"\\u0061":3}'),
]  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match=r"a document is not JSON: .*column=j"):
        to_variant(pa.array(["[]", None, text]), "j")


@given(document_texts, st.data())
def test_a_document_that_was_cut_or_changed_is_read_or_refused(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    cut = text[:at] + data.draw(st.sampled_from(["", '"', "[", "}", ",", "\\", "1e9"])) + text[at + 1 :]
    try:
        variants = to_variant(pa.array([cut]), "j")
    except DecodeError:
        return
    Reader(variants[0].as_py()).read()


@pytest.mark.parametrize("text", ['"' + "x" * 100 + '"', "[" + "1e9," * 20 + "1]", '{"' + "k" * 100 + '":[]}'])
def test_what_is_too_large_for_spark_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(_variant, "_MOST_BYTES", 100)
    with pytest.raises(DecodeError, match="too large for a VARIANT"):
        to_variant(pa.array([text]), "j")
