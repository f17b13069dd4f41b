"""Base of the file's sections, and what several of them need: paths, URLs, names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeAlias
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from headgate.policies import checked_rules

__all__ = [
    "COLLECTED",
    "FOLDER",
    "SECTION",
    "Conflict",
    "FilePath",
    "KafkaClient",
    "LocalPath",
    "Model",
    "RulesByTable",
    "VariableName",
    "both_set",
    "is_server_url",
    "is_table",
    "split_url",
]

FOLDER: Final = "folder"
"""Key in the context of a validation: the folder (an absolute ``Path``) at which relative paths start."""

COLLECTED: Final = "collected"
"""Key in the context of a validation: whether the caller collects the conflicts of all sections."""

Conflict: TypeAlias = tuple[str, str]
"""Values that do not go together: the keys, separated by blanks, each relative to the section; and one line."""

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


SECTION: Final = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)
"""How sections are checked: an unknown key is an error, and errors do not show values."""


class Model(BaseModel):
    """A frozen section of a configuration file."""

    model_config = ConfigDict(**SECTION, frozen=True)

    def _conflicts(self) -> Iterator[Conflict]:
        """Yield the values of this section and those in it that do not go together. Each value alone is valid."""
        yield from ()

    @model_validator(mode="after")
    def _check_conflicts(self, info: ValidationInfo) -> Self:
        if not (info.context or {}).get(COLLECTED):
            texts = [text for _, text in self._conflicts()]
            if texts:
                raise ValueError("; ".join(texts))
        return self


def _absolute(path: str, info: ValidationInfo) -> str:
    folder: Path | None = (info.context or {}).get(FOLDER)
    if folder is None or not path or _URI.match(path):
        return path
    return os.path.normpath(folder / os.path.expanduser(path))  # noqa: PTH111 - leaves ~nobody as it is


FilePath: TypeAlias = Annotated[str, AfterValidator(_absolute)]
"""A path, or a URI (``s3://…``, ``file:/…``). Parsing a file makes its relative paths absolute; values that are made
otherwise stay as they are."""


LocalPath: TypeAlias = Annotated[Path, AfterValidator(lambda path, info: Path(_absolute(str(path), info)))]
"""A path of this machine, made absolute as a ``FilePath``."""


def _check_variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("expected the name of an environment variable, not its value")
    return name


VariableName: TypeAlias = Annotated[str, AfterValidator(_check_variable)]
"""The name of an environment variable. Errors show it, so its value, which may be a secret, is refused."""

RulesByTable: TypeAlias = Annotated[dict[str, dict[str, Any]], AfterValidator(checked_rules)]
"""``[columns]``: pattern on ``db.table`` → pattern on columns → rule, as :func:`parse_rules` takes them."""


class KafkaClient(Model):
    """How Kafka is reached."""

    bootstrap: str = Field(min_length=1, description="`host:port` of a broker, or several, comma-separated")
    settings_file: FilePath | None = Field(
        None,
        description="file of further settings of librdkafka, one `name=value` a line, passwords among them; a relative"
        " path starts at the working directory",
    )


def both_set(names: Sequence[str]) -> Iterator[Conflict]:
    """Yield a conflict if more than one of the keys is set that say the same.

    :param names: those of the keys that are set.
    """
    if len(names) > 1:
        yield " ".join(names), f"{names[0]} and {names[1]} are both set; keep one"


def is_table(text: str) -> bool:
    """Return whether ``text`` has the form ``db.table``."""
    db, dot, table = text.partition(".")
    return bool(db and dot and table)


def split_url(url: str, *schemes: str) -> SplitResult | None:
    """Return the parts of a URL that has one of these schemes, a host whose name can be looked up and, if any, a valid
    port; None for any other text.
    """
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        return parts if parts.scheme in schemes and parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


def is_server_url(url: str) -> bool:
    """Return whether a URL names a web server alone: ``http://host:port`` or ``https://host:port``, without a user, a
    path or a query.
    """
    parts = split_url(url, "http", "https")
    return parts is not None and parts.username is None and not parts.path.strip("/") and not parts.query
