"""What a file says in other languages is checked without a server, all of it at once."""

from __future__ import annotations

import pytest

from headgate.config import parse_config
from headgate.errors import ConfigError
from headgate.pipeline import check_texts

TEXT = """
name = "p"
[source]
url = "mysql://u@h"
tables = ["a.*"]
[target]
path = "/nowhere/lake"
[columns]
"a.*" = { n = { rename = "amount" } }
[tables."a.b"]
rows = "n > 1"
[tables."a.c"]
condition = "n > 1"
"""


def test_what_a_file_says_in_other_languages_is_checked_at_once() -> None:
    check_texts(parse_config(TEXT))
    text = TEXT.replace("@h", "@h/?tls=perhaps").replace("n > 1", "n > (1").replace('"amount"', '"_seq"')
    with pytest.raises(ConfigError) as caught:
        check_texts(parse_config(text.replace("[target]", 'start = "yesterday"\n[target]')))
    begins = (
        "unknown tls mode 'perhaps'; use one of",
        "the start is 'yesterday'; expected current, earliest,",
        'the condition of [tables."a.c"]: ',
        "rows of a.b: ",
        "[columns] renames a.*.n to _seq, a name that headgate uses itself",
    )
    assert len(caught.value.lines) == len(begins)
    for line, begin in zip(caught.value.lines, begins, strict=True):
        assert line.startswith(begin)
