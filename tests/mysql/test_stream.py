"""The growing buffer: what is asked for arrives, what is unread stays."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import ConnectionLostError
from headgate.mysql import ByteStream
from tests.mysql.test_result import Pieces


@settings(max_examples=200)
@given(st.data())
def test_the_stream_is_the_bytes_in_order(data: st.DataObject) -> None:
    content = data.draw(st.binary(min_size=1, max_size=500))
    pieces = Pieces(content, data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=5)))
    stream = ByteStream(cast("Any", pieces), room=data.draw(st.integers(1, 64)))
    seen = b""
    while len(seen) < len(content):
        unread = stream.end - stream.start
        left = len(content) - len(seen)
        if unread == left or (unread and data.draw(st.booleans())):
            count = data.draw(st.integers(1, unread))
            seen += stream.buf[stream.start : stream.start + count].tobytes()
            stream.consume(count)
        elif data.draw(st.booleans()) and unread:
            old = stream.hand_over()
            assert old is not stream.buf
        else:
            wanted = data.draw(st.integers(1, left))
            stream.fill(wanted)
            assert stream.end - stream.start >= max(wanted, unread + 1)
    assert seen == content


def test_consuming_more_than_there_is_is_a_mistake() -> None:
    stream = ByteStream(cast("Any", Pieces(b"abc")))
    stream.fill()
    with pytest.raises(ValueError, match="cannot consume 4 of 3"):
        stream.consume(4)


def test_an_end_and_a_silence_are_lost_connections() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.01)
        stream = ByteStream(ours, "db", 3306)
        with pytest.raises(ConnectionLostError, match=r"db:3306 ended: no answer in time"):
            stream.fill()
        theirs.sendall(b"ab")
        stream.fill(2)
        theirs.close()
        with pytest.raises(ConnectionLostError, match=r"db:3306 ended: the server closed it") as caught:
            stream.fill()
        assert (caught.value.host, caught.value.port) == ("db", 3306)
        assert stream.buf[stream.start : stream.end].tobytes() == b"ab"
