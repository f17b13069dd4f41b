"""A lake that another pipeline writes is found without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headgate.errors import TargetError
from headgate.lake import PIPELINE, TABLE, Lake, Place, check_lake
from tests.lake.tables import make_table


def test_a_lake_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    lake, schema = Lake.at(tmp_path / "lake"), pa.schema({"id": pa.int32()})
    tables = {"shop.a": None, "shop.b": Place("shop.c")}
    check_lake(lake, "shop", tables)
    make_table(lake.ledger, [], schema, {PIPELINE: "shop", TABLE: "_headgate.ledger"})
    make_table(lake.current("shop.a"), [], schema, {PIPELINE: "shop", TABLE: "shop.a"})
    check_lake(lake, "shop", tables)
    with pytest.raises(TargetError, match=r"_headgate/ledger belongs to pipeline 'shop', .* not to pipeline 'mine'"):
        check_lake(lake, "mine", tables)
    make_table(lake.changelog("shop.b", Place("shop.c")), [], schema, {})
    with pytest.raises(TargetError, match=r"_changelog/shop/c is a Delta table that headgate did not make"):
        check_lake(lake, "shop", tables)
