"""docs/reference/spark.md says what the options are, in the options' own words, and its examples use no others."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from headgate.spark import OPTION_HELP, Options
from tools import generate_configuration

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "spark.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_every_option_stands_in_the_table_with_its_meaning() -> None:
    assert generate_configuration.spark_page() == PAGE, "run python tools/generate_configuration.py"
    table = PAGE.split("\n## Options\n")[1]
    assert re.findall(r"^\| `(\w+)` \| .* \|$", table, re.MULTILINE) == sorted(OPTION_HELP)


def test_the_examples_use_options_that_exist() -> None:
    used = {name for block in BLOCKS for name in re.findall(r'\.option\("(\w+)"', block)}
    assert {"table", "tables", "as_of", "start", "end", "meta"} <= used
    assert used - {"checkpointLocation"} <= OPTION_HELP.keys()


def test_the_common_options_of_the_examples_are_valid() -> None:
    (line,) = re.findall(r"^options = (\{.*\})$", PAGE, re.MULTILINE)
    options = Options.parse({**ast.literal_eval(line), "table": "shop.orders"})
    assert options.settings().tls == "required"


def test_the_examples_are_python() -> None:
    for block in BLOCKS:
        ast.parse(block.replace("...\n", "\n"))
