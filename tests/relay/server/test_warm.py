"""Once the relay serves, no consumer waits for a compiler, nor for the rows of another consumer."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headgate.relay.server.events import RowDecoder
from tests.relay.server.rows import block, people
from tests.relay.server.serving import PATIENCE_SECONDS, served

FRESH = """
import sys
from numba.core.dispatcher import Dispatcher
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import PERSON, served

def loaded():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("headgate."):
            for one in vars(module).values():
                if isinstance(one, Dispatcher):
                    found[one.py_func.__module__, one.py_func.__name__] = len(one.signatures)
    return found

def only(**what):
    return {"filters": {str(PERSON.id): {"partitionType": "NONE", **what}}}

version = int(sys.argv[1])
with served(event_version=version, before_images=version > 1) as relay:
    people_of = dict(gtids=[f"{UUID}:1"] * 4, pos=[200] * 4)
    relay.put(block(people([1, 2, 3, 4], **people_of)))
    before = loaded()
    assert before["headgate.relay.server.events._choice", "select"] == 1
    buckets = [{"numBuckets": 2, "bktRange": {"start": 0, "end": 1}}]
    asked = [
        {"output": output, "maxev": maxev, **more}
        for output in ("binary", "json", "json_plain_value", "rows", "arrow")
        for maxev in ("0", "2")
        for more in (
            {}, {"sources": "40"}, only(where="firstName LIKE 'first%'"), only(columns=["lastName"]),
            only(partitionType="HASH", filters=buckets), only(partitionType="MOD", filters=buckets),
        )
    ]
    for parameters in asked:
        answer = relay.get("stream", **{"sources": "40,41", "size": "100000", **parameters})
        assert answer.status == 200 and answer.body, (parameters, answer)
    late = {name for name, count in loaded().items() if count != before.get(name, 0)}
    assert not late, late
"""
EVERY_TYPE = """
import sys
from numba.core.dispatcher import Dispatcher
from tests.relay.server.serving import load_loops
from tests.relay.server.test_avro import TABLE

load_loops([TABLE], 1)
kernels = {name: len(one.signatures) for name, one in vars(sys.modules["headgate.relay.server.events._decode"]).items()
           if isinstance(one, Dispatcher)}
del kernels["varint"]  # a part of the others
assert len(kernels) > 5
assert set(kernels.values()) == {1}, kernels
"""


def in_a_new_process(code: str, *arguments: str) -> None:
    """What other tests have loaded is not there."""
    subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=Path(__file__).parents[3], check=True, timeout=PATIENCE_SECONDS
    )


@pytest.mark.parametrize("version", ["1", "2"])
def test_whatever_is_asked_for_is_loaded_before(version: str) -> None:
    in_a_new_process(FRESH, version)


def test_what_decodes_every_type_is_loaded_before() -> None:
    in_a_new_process(EVERY_TYPE)


def test_others_are_answered_while_rows_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as that takes."""
    decoding, release, answers, decode = threading.Event(), threading.Event(), list[Any](), RowDecoder.decode

    def decoded(*arguments: Any, **more: Any) -> Any:
        decoding.set()
        assert release.wait(PATIENCE_SECONDS)
        return decode(*arguments, **more)

    with served() as relay:
        monkeypatch.setattr(RowDecoder, "decode", decoded)
        relay.put(block(people([1, 2])))
        parameters = {"sources": "40,41", "size": "100000", "output": "rows"}
        thread = threading.Thread(target=lambda: answers.append(relay.get("stream", **parameters)))
        thread.start()
        try:
            assert decoding.wait(PATIENCE_SECONDS)
            assert relay.get("sources").status == 200
            answer = relay.get("stream", sources="40,41", size="100000", output="binary")
            assert (answer.status, len(answer.body) > 100, answers) == (200, True, [])
        finally:
            release.set()
            thread.join(PATIENCE_SECONDS)
    assert b'"firstName":"first1"' in answers[0].body
