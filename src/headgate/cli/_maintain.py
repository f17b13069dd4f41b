"""``headgate maintain``: upkeep of a lake at once, and its result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headgate.cli._common import console, folding_table, on_terminal, write_text

if TYPE_CHECKING:
    from headgate.config import PipelineConfig
    from headgate.upkeep import Amount, Maintained, Maintenance

__all__ = ["maintain"]

_CODEC: Final = "spark.sql.parquet.compression.codec"


def maintain(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
) -> int:
    """Remove files that the lake no longer needs, fold small files into larger ones, and print the result.

    A running pipeline does the same automatically, in a fifth of its time at most. Use this after many runs with
    --once, to see the amounts (--dry-run), or after target.retention_hours was shortened. It starts no Spark and does
    not query MySQL.

    Kept: the newest batch of the ledger, and every batch of the last target.retention_hours. Removed: data files,
    deletion vectors and log files that only older batches need, and files of unfinished batches after a day.

    It may be used while the pipeline runs. Then it only removes files, because the run folds them. On S3 it never
    folds. The small files that it folds stay as long as a batch needs them: the next run names the larger ones in its
    ledger, and removes the small ones after target.retention_hours.

    The last lines estimate the size in a week, if the last hour of the ledger continues: the growth of the rows in a
    week, and the files that batches leave behind in target.retention_hours.

    The exit code is 1 if a file could not be removed; a warning names each.

    Examples:
      headgate maintain pipeline.toml
      headgate maintain pipeline.toml --dry-run
    """
    from headgate.config import load_config
    from headgate.lake import Lake, check_lake
    from headgate.upkeep import Maintenance

    config = load_config(pipeline)
    lake = Lake.of(config)
    check_lake(lake, config.name, {})
    codec = config.spark.get(_CODEC, "snappy")
    work = Maintenance(lake, config.target.retention_hours * 3600.0, codec, dry=dry_run)
    done = list(work.tables())
    if on_terminal():
        _print_table(done, dry=dry_run)
    else:
        write_text(_line(one, dry=dry_run) for one in done)
    write_text(_conclusion(config, work, done, dry=dry_run))
    return 1 if any(one.failures for one in done) else 0


def _print_table(done: list[Maintained], *, dry: bool) -> None:
    from rich.markup import escape

    would = "would be " if dry else ""
    view = folding_table("table", "before", "after", f"{would}removed", f"{would}folded", "in a week")
    for one in done:
        week = "" if one.week is None else _text(one.week)
        folded = str(one.folded or "")
        view.add_row(escape(one.name), _text(one.before), _text(one.after), _text(one.removed), folded, week)
    console().print(view)


def _line(one: Maintained, *, dry: bool) -> str:
    would = "would be " if dry else ""
    folded = f", {one.folded} {would}folded" if one.folded else ""
    return f"{one.name}: {_text(one.before)}; {would}removed: {_text(one.removed)}{folded}; left: {_text(one.after)}"


def _conclusion(config: PipelineConfig, work: Maintenance, done: list[Maintained], *, dry: bool) -> list[str]:
    from headgate.status import counted

    before, after, removed = (_sum([getattr(one, name) for one in done]) for name in ("before", "after", "removed"))
    would = "would be " if dry else ""
    lines = [f"all tables: {_text(before)}; {would}removed: {_text(removed)}; left: {_text(after)}"]
    if failures := sum(one.failures for one in done):
        lines.append(f"{counted(failures, 'file')} could not be removed: see the warnings, then repeat it")
    if work.busy is not None:
        lines.append(f"the lake is being written by {work.busy}, which folds small files itself")
    weeks = [one.week for one in done if one.week is not None]
    kept = f"target.retention_hours = {config.target.retention_hours:g}"
    if weeks:
        rate = f"{work.batches:,} batches in {work.seconds / 60:.0f} minutes"
        lines.append(f"at the rate of the last hour ({rate}) and with {kept}: {_text(_sum(weeks))} in a week")
    else:
        lines.append("the size in a week cannot be estimated yet: the ledger covers less than ten minutes")
    return lines


def _sum(amounts: list[Amount]) -> Amount:
    from headgate.upkeep import Amount

    return sum(amounts, Amount())


def _text(amount: Amount) -> str:
    return f"{amount.files:,} files, {amount.bytes / 1e6:,.1f} MB"
