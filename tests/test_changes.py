from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate._changes import count_changes
from tests.fix_carrier import FakeTable


@given(st.lists(st.sampled_from(["c", "u", "d", "r", "t"])), st.integers(0, 5))
def test_the_two_images_of_an_update_are_one_change(changes: list[str], cut: int) -> None:
    ops = "".join(op.replace("u", "bu") for op in changes)
    batch = FakeTable().batch(5, [(op, pos, 1, "x") for pos, op in enumerate(ops)])
    assert count_changes(batch) == len(changes)
    rest = batch.slice(cut)  # a slice has the buffers of the whole
    assert count_changes(rest) == sum(op != "b" for op in ops[cut:])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rest.schema) as writer:
        writer.write_batch(rest)
    for read in pa.ipc.open_stream(sink.getvalue()):
        assert count_changes(read) == count_changes(rest)
