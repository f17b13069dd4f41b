"""A headless Chromium, driven over its debugging pipe: no port, no driver program, no library.

Messages are JSON with a NUL after each, on the browser's file descriptors 3 (to it) and 4 (from it): the Chrome
DevTools Protocol, with flattened sessions.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Browser", "find_chromium"]

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
_SECONDS = 60
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), "ArrowRight": (39, ""), "ArrowDown": (40, "")}
"""The number and the text of keys that are no letters."""


def find_chromium() -> str | None:
    """The browser's program, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def _pipe() -> tuple[int, int]:
    """The ends of a pipe, with numbers above those that the browser's ends get."""
    ends = os.pipe()
    try:
        read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    finally:
        for end in ends:
            os.close(end)
    return read, write


class Browser:
    """One browser with one page.

    :param profile: an empty folder for it to write to.
    """

    def __init__(self, program: str, profile: Path) -> None:
        to_read, self._to = _pipe()
        self._from, to_write = _pipe()
        # The shell moves the two ends to where the browser looks for them.
        command = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-'
        with (profile / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ["/bin/bash", "-c", command, program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
                pass_fds=(to_read, to_write), stdout=log, stderr=log,
                env={**os.environ, "HOME": str(profile), "XDG_CONFIG_HOME": str(profile)},
            )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        self.send("Target.setDiscoverTargets", discover=True)  # the browser answers before it has a page
        page = self.until(lambda event: event.get("params", {}).get("targetInfo", {}).get("type") == "page", 0)
        target = page["params"]["targetInfo"]["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Page.setLifecycleEventsEnabled", enabled=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = None
        try:
            self.send("Browser.close")
            self._process.wait(_SECONDS)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._to)
            os.close(self._from)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol; what comes in between is in ``events``."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._from, 1 << 20)
            if not data:
                raise EOFError("the browser ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        seen = len(self.events)
        answer = self.send("Page.navigate", url=url)
        assert "errorText" not in answer, answer

        def is_loaded(event: dict[str, Any]) -> bool:
            """This page, not the one before, which may be loaded meanwhile."""
            parameters = event.get("params", {})
            return event.get("method") == "Page.lifecycleEvent" and (
                (parameters["name"], parameters["loaderId"]) == ("load", answer["loaderId"])
            )

        self.until(is_loaded, seen)

    def until(self, wanted: Callable[[dict[str, Any]], bool], seen: int) -> dict[str, Any]:
        """Wait for an event, counting from the one with the number ``seen``."""
        while True:
            for event in self.events[seen:]:
                if wanted(event):
                    return event
            seen = len(self.events)
            self.events.append(self._receive())

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """One key: one of ``_KEYS`` or a letter."""
        code, text = _KEYS.get(key, (0, key))
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def look(self, *, width: int, height: int, dark: bool) -> None:
        """The size of the window, and which colours the user prefers."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        """The whole page as a PNG."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))
