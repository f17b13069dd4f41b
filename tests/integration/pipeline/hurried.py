"""``headgate`` with the upkeep of hours in a minute: small files are folded, logs checkpointed and what is old removed
while a test looks. ``target.retention_hours`` are seconds.
"""

from __future__ import annotations

from typing import Any

from headgate.cli import main
from headgate.delta import _checkpoint, _fold
from headgate.lake import Lake, _keeper, _upkeep

if __name__ == "__main__":
    values: list[tuple[Any, str, float]] = [
        (_fold, "_FILES", 4),
        (_upkeep, "_FILES", 4),
        (_upkeep, "ROUND_SECONDS", 1.0),
        (_checkpoint, "_COMMITS", 5),
        (_keeper, "_LISTING_SECONDS", 10.0),
        (_keeper, "_ORPHAN_SECONDS", 300.0),  # longer than a batch takes on any machine
    ]
    for module, name, value in values:
        assert hasattr(module, name)
        setattr(module, name, value)
    begin = _upkeep.Upkeep.__init__

    def hurried(upkeep: _upkeep.Upkeep, lake: Lake, retention_seconds: float, *more: Any) -> None:
        begin(upkeep, lake, retention_seconds / 3600, *more)

    _upkeep.Upkeep.__init__ = hurried  # type: ignore[assignment, method-assign]
    main()
