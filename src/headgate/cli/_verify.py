"""``headgate verify``: compare the rows of the lake with those of the source, while writers run.

Tables are compared in threads, several at a time and the large ones in parts. Results are printed in the order of the
tables' names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from headgate.compare import TableResult

__all__ = ["verify"]

_CHANGED = (
    "they changed, with partial row images, each time they were compared; let the pipeline run, and verify again when "
    "they change less, or with binlog_row_image=FULL"
)


def verify(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file.", show_default=False)],
    samples: Annotated[int, typer.Option("--samples", min=0, help="How many differing rows to show of a table.")] = 20,
) -> int:
    """Compare every row of the lake's live and inexact tables with the source, while writers and the pipeline continue.

    Both sides are read as of the same moment: the GTID set of the newest batch in the ledger. The exit code is 1 if
    something differs or could not be compared, or if a table is stopped or waits to be read, for the first time or
    again. Tables that are excluded, that the source dropped, or that have a condition or skip inserts or updates, are
    not compared and do not change the exit code.

    Tables are compared in threads, in memory that does not grow with them. If so many rows of a table differ that they
    do not fit, the result says how many differ at least.

    If sessions write partial row images (binlog_row_image MINIMAL or NOBLOB), some rows cannot be compared as of that
    set, because they have changed since and their former values are unknown. They are compared as of the batches that
    the pipeline commits meanwhile, so let it run. If rows change too often for that, they are listed, with exit code 1.

    Examples:
      headgate verify pipeline.toml
      headgate verify pipeline.toml --samples 3
    """
    from headgate.cli._progress import verify_view
    from headgate.config import load_config
    from headgate.verification import Verification, check_comparable

    config = load_config(pipeline)
    check_comparable(config)
    results = []
    with verify_view() as view, closing(Verification(config, view, samples).results()) as comparisons:
        for result, row in comparisons:
            view.done(result.table)
            view.print(_lines(result, row.gtid))
            results.append(result)
    return _conclude(results)


def _lines(result: TableResult, gtid: str) -> Iterator[str]:
    if result.state != "live":
        yield f"{result.table}: {result.state}: {result.remark}"
        return
    from headgate.status import counted

    total = result.equal + result.different + result.only_source
    later = f" ({result.later:,} of them as of {result.later_gtid} or before)" if result.later else ""
    kept = f", and {result.removed:,} that MySQL removed (skip)" if result.removed else ""
    if result.more:
        yield (f"{result.table}: at least {result.differences:,} rows differ as of {gtid}, {result.remark}{kept}")
    elif not result.differences:
        yield f"{result.table}: {counted(total, 'row')}, equal as of {gtid}{later}{kept}"
    else:
        yield (
            f"{result.table}: {counted(total, 'row')} as of {gtid}{later}: {result.only_source:,} only in source, "
            f"{result.only_target:,} only in target, {result.different:,} different{kept}"
        )
    if result.inexact is not None:
        yield f"  inexact: {result.inexact}"
    for sample in result.samples:
        values = "; ".join(
            f"{name}: source {_spelled(a)}, target {_spelled(b)}" for name, (a, b) in sample.columns.items()
        )
        copies = (
            "" if sample.copies is None else f" ({sample.copies[0]} in the source, {sample.copies[1]} in the target)"
        )
        yield f"  {sample.kind}: {_text(sample.key)}{': ' if values else ''}{values}{copies}"
    if result.undecided:
        reason = result.remark or _CHANGED
        yield f"  {result.undecided:,} more rows could not be compared: {reason}"
        yield from (f"  undecided: {_text(key)}" for key in result.undecided_keys)


def _text(key: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_spelled(value)}" for name, value in key.items())


def _spelled(value: object) -> str:
    """Return a value as SQL spells it: people read it, and look for the row with it."""
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"x'{value.hex()}'"
        case datetime() | date():
            return f"'{value}'"
        case Decimal():
            return str(value)
    return repr(value)


def _conclude(results: list[TableResult]) -> int:
    from headgate.lake import TROUBLED
    from headgate.status import counted

    compared = [result for result in results if result.state == "live"]
    wrong = [result for result in compared if result.differences]
    broken = [result for result in results if result.state in TROUBLED]
    other = [result for result in results if result.needs_attention and result.state not in TROUBLED]
    open_ = [result for result in other if result.undecided or not result.differences]
    rows = sum(result.equal for result in compared)
    if wrong or broken:
        differ = f"{len(wrong)} of {counted(len(compared), 'table')} {'differs' if len(wrong) == 1 else 'differ'}"
        sys.stdout.write(f"{differ}, {len(broken)} {'is' if len(broken) == 1 else 'are'} stopped or stale\n")
    if open_:
        lines = "1 table could not be compared wholly; its line has the reason"
        if len(open_) > 1:
            lines = f"{len(open_)} tables could not be compared wholly; their lines have the reasons"
        sys.stdout.write(f"{lines}\n")
    if wrong or broken or open_:
        return 1
    if not compared:
        sys.stdout.write("no table was compared\n")
        return 1
    left = f"; {len(results) - len(compared)} not compared" if len(results) > len(compared) else ""
    equal = "1 table is equal" if len(compared) == 1 else f"all {len(compared):,} tables are equal"
    sys.stdout.write(f"{equal}: {counted(rows, 'row')}{left}\n")
    return 0
