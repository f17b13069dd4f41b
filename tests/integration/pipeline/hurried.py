"""``headgate`` with the upkeep of hours in a minute: small files are folded, logs checkpointed and what is old removed
while a test looks. ``target.retention_hours`` are seconds.
"""

from __future__ import annotations

from typing import Any

from headgate.cli import main
from headgate.delta import _checkpoint, _fold
from headgate.lake import Lake
from headgate.upkeep import UpkeepTimes, _upkeep

if __name__ == "__main__":
    values: list[tuple[Any, str, float]] = [
        (_fold, "_FILES", 4),
        (_upkeep, "_FILES", 4),
        (_upkeep, "ROUND_SECONDS", 1.0),
        (_upkeep, "LOOK_SECONDS", 1.0),
        (_checkpoint, "_COMMITS", 5),
    ]
    for module, name, value in values:
        assert hasattr(module, name)
        setattr(module, name, value)
    begin = _upkeep.Upkeep.__init__

    def hurried(upkeep: _upkeep.Upkeep, lake: Lake, retention_seconds: float, codec: str | None) -> None:
        times = UpkeepTimes(listing=10.0, orphan=300.0)  # the latter is longer than a batch takes on any machine
        begin(upkeep, lake, retention_seconds / 3600, codec, times)

    _upkeep.Upkeep.__init__ = hurried  # type: ignore[assignment, method-assign]
    main()
