"""Small deletion vectors in the log itself, as other writers store them."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.delta import VectorFile
from headgate.delta import vectors as vectors_module
from headgate.delta.vectors import Positions, encode

__all__ = ["store_inline"]

_BYTES = 256


def store_inline(patch: pytest.MonkeyPatch) -> None:
    """Have vectors of at most 256 bytes stored in the log."""
    add = VectorFile.add

    def add_inline(file: VectorFile, positions: Positions) -> dict[str, Any]:
        data = encode(positions)
        if len(data) > _BYTES:
            return add(file, positions)
        text = vectors_module._pack(data)
        return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(positions)}

    patch.setattr(VectorFile, "add", add_inline)
