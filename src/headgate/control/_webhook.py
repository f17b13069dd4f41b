"""Notifications to an HTTP server: a POST for each, as JSON.

A status of 200 to 299 means delivered. Any other answer, a redirect too (a redirected POST is no longer a POST), or a
time-out means not delivered: the rest of the batch waits for it. ``Idempotency-Key`` is the event's id, so that a
receiver recognises repetitions.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from headgate.control._events import Notification
from headgate.errors import ConfigError, NotificationError
from headgate.tls import client_context
from headgate.web import read_token

__all__ = ["WebhookChannel"]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Handler that does not follow redirects."""

    def redirect_request(self, *_: Any) -> None:
        return None


class WebhookChannel:
    """The channel ``webhook``.

    :param url: ``http://`` or ``https://``.
    :param token_file: a file whose text is sent as ``Authorization: Bearer``; read for each POST, so it may change.
    :param timeout_seconds: time limit of one POST.
    """

    name = "webhook"

    def __init__(self, url: str, *, timeout_seconds: float, token_file: str | None = None) -> None:
        self._url, self._token_file, self._timeout = url, token_file, timeout_seconds
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=client_context()))

    def send(self, epoch: int, notifications: Sequence[Notification]) -> None:
        """Post each of a batch's notifications.

        :raises NotificationError: the server cannot be reached or refuses; the message holds no secret.
        """
        for one in notifications:
            self._post(one, epoch)

    def _post(self, one: Notification, epoch: int) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": one.event_id, "User-Agent": "headgate"}
        if self._token_file is not None:
            headers["Authorization"] = f"Bearer {_token(self._token_file)}"
        body = json.dumps({**one.to_dict(), "epoch": epoch}, ensure_ascii=False).encode()
        request = urllib.request.Request(self._url, body, headers, method="POST")  # noqa: S310 - the scheme is checked
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            with error:
                phrase = HTTPStatus(error.code).phrase if error.code in set(HTTPStatus) else ""
                raise NotificationError(f"the webhook answers {error.code} {phrase}".rstrip()) from None
        except OSError as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise NotificationError(f"the webhook cannot be reached: {reason}") from None

    def close(self) -> None:
        """Do nothing: each POST opens and closes its connection."""


def _token(token_file: str) -> str:
    try:
        return read_token(token_file, "the webhook's token_file")
    except ConfigError as error:
        raise NotificationError(error.message) from None
