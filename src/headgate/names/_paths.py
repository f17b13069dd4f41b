"""Names in paths: of folders and of files."""

from __future__ import annotations

import hashlib
import re
from typing import Final

__all__ = ["LONGEST_SEGMENT", "path_segment"]

LONGEST_SEGMENT: Final = 255
"""Most bytes of a file's name, in all usual file systems."""
_PLAIN: Final = re.compile("[a-z0-9][a-z0-9_]*")
_ENCODED: Final = re.compile("[^A-Za-z0-9_]")


def path_segment(name: str, longest: int = LONGEST_SEGMENT) -> str:
    """Return the one segment of a path that stands for ``name``: the name of a folder, or the stem of a file's name.

    Letters a to z, digits and ``_`` stand for themselves. Everything else begins with ``-``:

    - ``--`` is ``-``;
    - ``-`` and four hexadecimal digits are any other character (a unit of UTF-16), and a leading ``_``, which Spark
      hides: ``a b`` is ``a-0020b``;
    - letters A to Z are as they are, and ``-u`` at the end is followed by which of the name's characters they are, as
      the bits of a hexadecimal number: ``Orders`` is ``Orders-u1``;
    - if the segment would be too long, its end is ``-h`` and a digest of the name.

    So two names never share a segment, also where a file system ignores the case of letters or normalises Unicode. No
    reader of tables and no object store encodes or decodes any of these characters: percent signs are decoded once more
    by delta-rs and DuckDB, and Polars and DuckDB cannot open paths with characters beyond ASCII.

    :param longest: most characters of the segment, 40 or more.
    """
    if len(name) <= longest and _PLAIN.fullmatch(name):
        return name
    parts = [_ENCODED.sub(_escape, character) for character in name]
    if name.startswith("_"):
        parts[0] = "-005f"
    capitals = sum(1 << index for index, character in enumerate(name) if "A" <= character <= "Z")
    segment = "".join(parts) + (f"-u{capitals:x}" if capitals else "")
    if 0 < len(segment) <= longest:
        return segment
    ending = f"-h{hashlib.blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
    while len(ending) + sum(map(len, parts)) > longest:
        parts.pop()
    return "".join([*parts, ending])


def _escape(match: re.Match[str]) -> str:
    if match[0] == "-":
        return "--"
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"-{units[start : start + 4]}" for start in range(0, len(units), 4))
