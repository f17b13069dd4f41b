"""The status page of pipelines, for browsers, programs and Prometheus; accepts signals with a token."""

from __future__ import annotations

from headgate.ui._app import create_app
from headgate.ui._pipelines import PipelineView, Watched, WatchedFile
from headgate.web import Token
from headgate.web.serving import Serving

__all__ = ["PipelineView", "Serving", "Token", "Watched", "WatchedFile", "create_app"]
