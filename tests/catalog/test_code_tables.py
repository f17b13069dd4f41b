"""Character sets by Python's codecs and MySQL's differences to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.catalog import MULTI_BYTE, SINGLE_BYTE, code_table
from tools.generate_charsets import digest

DIGESTS = {
    line.split()[1]: line.split()[0]
    for line in Path(__file__).with_name("charsets.sha256").read_text("ascii").splitlines()
}
"""Set -> digest of its codes and characters on a server; ``tools/generate_charsets.py`` writes them."""


def test_every_set_has_a_digest() -> None:
    assert DIGESTS.keys() == SINGLE_BYTE | MULTI_BYTE


@pytest.mark.parametrize("charset", sorted(DIGESTS))
def test_codes_are_those_of_the_server_with_the_codecs_of_this_python(charset: str) -> None:
    assert digest(code_table(charset)) == DIGESTS[charset]
