"""The Python that Spark starts: makes the fork server run a module, or becomes a plain Python.

It runs before everything else and loads as little as possible: ``_forked_python`` writes this file's text into an
executable file, run by ``python -IS``. So it imports nothing of headgate.

It sends the server one message, with this process's three standard streams attached: its length as four bytes,
little-endian; then, separated by NUL, the working folder, the number of arguments, the arguments and the environment as
``NAME=value``. The reply is one byte (``+``: a process was forked; ``-``: it was not) and later its wait status, four
bytes. If the reply is lost, this process fails, because the request may have begun, and must not run twice.
"""

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

SOCKET = "forks"  # the server's, in the folder of the executable file
FORKED, REFUSED = b"+", b"-"
GONE = 1 << 8  # the wait status if the server has ended: exit code 1


def main() -> None:
    try:
        status = run_forked(f"{os.path.dirname(__file__)}/{SOCKET}", sys.argv[1:])  # noqa: PTH120 - pathlib loads slowly
    except OSError:
        status = None
    if status is None:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - Spark's program
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)  # as a shell reports a signal


def run_forked(address: str, arguments: list[str]) -> "int | None":
    """Make the server run this; return its wait status, or None if it did not."""
    server = socket(AF_UNIX, SOCK_STREAM)
    server.connect(address)
    folder = os.getcwd()  # noqa: PTH109 - as above
    words = [folder, str(len(arguments)), *arguments, *(f"{name}={value}" for name, value in os.environ.items())]
    text = os.fsencode("\0".join(words))
    streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2))
    message = memoryview(len(text).to_bytes(4, "little") + text)
    sent = server.sendmsg([message], [(SOL_SOCKET, SCM_RIGHTS, streams)])
    if sent < len(message):  # else nothing may fail here: the server forks if it has the whole message
        server.sendall(message[sent:])
    status = b""
    try:
        reply = server.recv(1)
        if reply != FORKED:
            return None if reply == REFUSED else GONE
        while len(status) < 4:
            more = server.recv(4 - len(status))
            if not more:
                return GONE
            status += more
    except OSError:
        return GONE
    finally:
        server.close()
    return int.from_bytes(status, "little")


if __name__ == "__main__":
    main()
