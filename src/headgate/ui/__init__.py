"""The page: how pipelines are doing, for browsers, programs and Prometheus; signals for those who have the token."""

from __future__ import annotations

from headgate._serving import Serving
from headgate._tokens import Token
from headgate.ui._app import create_app
from headgate.ui._pipelines import Watched

__all__ = ["Serving", "Token", "Watched", "create_app"]
