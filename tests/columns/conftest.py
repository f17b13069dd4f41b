"""A kernel's first call compiles it, which says nothing about the example that happened to be first."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kernels", deadline=None)
settings.load_profile("kernels")
