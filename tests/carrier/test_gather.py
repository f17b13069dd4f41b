"""Record batches that are joined until they are worth a row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headgate.carrier import Gatherer, Images, _images, open_images
from headgate.replication import ImageBatch
from tests.fix_carrier import FakeTable
from tests.spark.model import batch_of, partial_of


class Gathered(Gatherer):
    """Images of tables with these columns."""

    def of(self, images: ImageBatch) -> list[Images]:
        return [*self.add(images, FakeTable(images.table.full_name, (("id", "int"), ("v", "int"))).carried)]


def gatherer() -> Gathered:
    return Gathered("rows")


def opened(images: Images) -> pa.RecordBatch:
    (batch,) = open_images([images.data])
    return batch


def test_gathered_images_keep_their_order_and_their_transactions() -> None:
    gathered = gatherer()
    parts = [[("c", n * 10 + i, i, n * 10 + i + 1) for i in range(3)] for n in range(4)]
    assert [gathered.of(batch_of("d.t", part)) for part in parts] == [[]] * 4
    gathered.of(batch_of("d.u", [("c", 1, 1, 1)]))
    one, other = gathered.rest()
    assert (one.table, one.kind, one.count) == ("d.t", "rows", 12)
    images = opened(one)
    assert images["id"].to_pylist() == [image[1] for part in parts for image in part]
    assert [text[37:] for text in images["_gtid"].to_pylist()] == [str(image[3]) for part in parts for image in part]
    assert other.table == "d.u"


def test_whole_and_partial_images_are_gathered_apart() -> None:
    gathered = gatherer()
    for number in range(4):
        parts = batch_of("d.t", [("c", number, 0, number + 1)])
        gathered.of(parts if number % 2 else partial_of([("u", number, 0, number + 1)], ['["v"]']))
    rows = [opened(images) for images in gathered.rest()]
    assert [row["id"].to_pylist() for row in rows] == [[0, 2], [1, 3]]
    assert rows[0]["_absent"].to_pylist() == ['["v"]'] * 2
    assert "_absent" not in rows[1].schema.names


def test_much_is_handed_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_images, "_GATHER_ROWS", 4)
    gathered = gatherer()
    given_out = [images.count for n in range(5) for images in gathered.of(batch_of("d.t", [("c", n, 0, n + 1)]))]
    assert given_out == [4]
    assert [images.count for images in gathered.rest()] == [1]


def test_all_is_handed_out_when_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (batch_of(table, [("c", 1, 1, 1)]) for table in ("d.t", "d.u"))
    monkeypatch.setattr(_images, "_ALL_BYTES", first.batch.nbytes + second.batch.nbytes)
    gathered = gatherer()
    for _ in range(2):  # what was handed out no longer counts
        assert gathered.of(first) == []
        assert [images.table for images in gathered.of(second)] == ["d.t", "d.u"]
