"""JSON documents at random, as text."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

__all__ = ["NASTY", "Number", "document_texts", "documents", "render"]


class Number(str):
    """A number as it is written."""

    __slots__ = ()


def _decimals(digits: str, point: int, sign: str) -> Number:
    whole, fraction = digits[:point].lstrip("0") or "0", digits[point:]
    return Number(f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}")


_EDGES = [
    sign * (1 << bits) + more for bits in (7, 8, 15, 16, 31, 63, 64, 126) for more in (-1, 0, 1) for sign in (1, -1)
]
_NUMBERS = st.one_of(
    st.integers(-(10**40), 10**40).map(lambda n: Number(str(n))),
    st.sampled_from(_EDGES).map(lambda n: Number(str(n))),
    st.builds(
        _decimals, st.text("0123456789", min_size=1, max_size=42), st.integers(0, 42), st.sampled_from(["", "-"])
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda f: Number(f"{f:.17e}")),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda f: Number(repr(f))),
    st.sampled_from(["-0", "-0.0", "0e0", "1E+5", "-1.5e-7", "123456789012345678901234567890123456789.5"]).map(Number),
)
_TEXTS = st.one_of(st.text(max_size=8), st.text(st.characters(exclude_categories=["Cs"]), min_size=60, max_size=70))
_SCALARS = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS)
documents: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(_TEXTS, inner, max_size=6),
        st.dictionaries(st.sampled_from(["a", "b", "aa", "ü", "\ue000", "\U00010000"]), inner),
    ),
    max_leaves=30,
)
"""Documents: numbers are :class:`Number`."""


def render(document: Any, *, escaped: bool = False, blank: str = "") -> str:
    """A document as text.

    :param escaped: everything but ASCII as ``\\u`` escapes.
    :param blank: between all signs.
    """

    def text(value: Any) -> str:
        if isinstance(value, Number):
            return str(value)
        if isinstance(value, list):
            return blank.join(["[", f"{blank},{blank}".join(map(text, value)), "]"])
        if isinstance(value, dict):
            members = (f"{text(key)}{blank}:{blank}{text(inner)}" for key, inner in value.items())
            return blank.join(["{", f"{blank},{blank}".join(members), "}"])
        return json.dumps(value, ensure_ascii=escaped)

    return blank + text(document) + blank


document_texts = st.builds(render, documents, escaped=st.booleans(), blank=st.sampled_from(["", " ", "\t\r\n"]))
"""Documents as text."""

NASTY = [
    *("1", "-0", "0.0", "-0.0", "1.50", "1e0", "1E400", "-1e400", "1e-400", "5e-324", "2.2250738585072011e-308"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "18446744073709551615"),
    *("9" * 38, "-" + "9" * 38, "9" * 39, "0." + "0" * 37 + "1", "0." + "0" * 38 + "1", "9" * 19 + "." + "9" * 19),
    *("999999999.9", "99999999.99", "99999999999999999.5", "999999999999999999.5", "0.1" + "0" * 50),
    *('""', '"' + "x" * 63 + '"', '"' + "x" * 64 + '"', '"' + "ü" * 32 + '"', '"' + "\U0001f600" * 16 + '"'),
    *('"\\ud83d\\ude00"', '"\\u00fC\\u0000\\u20aC"', '"\\"\\\\\\/\\b\\f\\n\\r\\t"', "null", "true", " false\t"),
    *("{}", "[]", "[[], {}]", '{"": 1}', '{"b": 1, "a": 2, "aa": {"b": 3, "c": []}}'),
    '{"\U00010000": 1, "\uffff": 2, "\ue000": 3, "\ud7ff": 4, "a": 5}', '{"ab": 1, "a": 2, "": 3, "abc": 4}',
    "[" * 1000 + "]" * 1000, "[" + "1," * 255 + "1]", "[" + "1," * 254 + "1]", "[" + "1e9, " * 20000 + "null]",
    json.dumps({f"key {n}": n for n in range(300)}), json.dumps({str(n * 7919 % 70_000): [n] for n in range(70_000)}),
    json.dumps(["x" * 70_000, {"y" * 40_000: 1}]), json.dumps(["x" * (17 << 20), [1e10], "y"]),
]  # fmt: skip
"""Documents at the limits of what Spark and MySQL know."""
