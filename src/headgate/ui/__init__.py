"""The page: how pipelines are doing, for browsers, programs and Prometheus; signals for those who have the token."""

from __future__ import annotations

from headgate.ui._app import create_app
from headgate.ui._pipelines import Watched
from headgate.web import Token
from headgate.web.serving import Serving

__all__ = ["Serving", "Token", "Watched", "create_app"]
