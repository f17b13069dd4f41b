"""Names that MySQL allows, and that SQL, paths, pages, terminals and metrics take for something else."""

from __future__ import annotations

NAMES = [
    "a'b", 'a"b', "a`b", "a``; DROP TABLE t; --", "a\\b\\", "../../etc/passwd", "/etc", "..", "a\nb", "a\r\n# HELP b",
    "\n2026-01-01 00:00:00,000 ERROR forged", "\x1b[2J\x1b[31mred", "\x01\x7f\x9b2J", "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>", "{{ 7*7 }}{% raw %}", "[red]x[/red]", "%s %(a)s {0}", "$(id) `id` ${x}",
    "a\u202eb\u2066", "=1+1", "a,b;c=d", "表" * 40, "x" * 64,
]  # fmt: skip
"""Names of tables and columns. U+0000, characters beyond U+FFFF and a space at the end are refused by MySQL."""
