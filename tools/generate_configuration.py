"""Writes configuration.md, the options in spark.md and the keys in relay.md, all in docs/reference/, from the
descriptions in the code.

``python tools/generate_configuration.py`` writes them; tests compare them with what this would write.
"""

from __future__ import annotations

import types
import typing
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headgate.config import (
    KafkaChannelConfig,
    KafkaTargetConfig,
    NotificationsConfig,
    NotificationTopicConfig,
    PipelineConfig,
    RelaySettings,
    SchemaChangesConfig,
    SignalsConfig,
    SourceConfig,
    TableConfig,
    TargetConfig,
    UiConfig,
    WebhookConfig,
)
from headgate.spark import OPTION_HELP, Options

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "configuration.md"
SPARK_PAGE = PAGE.with_name("spark.md")
RELAY_PAGE = PAGE.with_name("relay.md")

HEAD = """\
# pipeline.toml

One file describes one pipeline. `headgate init mysql://user@host:3306` writes a commented one from what it finds on the
server. An unknown key is an error that names the nearest known one.

```toml
name = "shop"

[source]
url = "mysql://headgate@127.0.0.1:3306"      # password from HEADGATE_PASSWORD or password_file, never logged
tables = ["shop.*", "!shop.tmp_*"]

[target]
path = "./lake"
mode = "current"                              # or a list: "current", "changelog", "kafka"

[spark]
master = "local[4]"

[tables."shop.orders"]
schema_changes = "strict"
```

No password ever stands in this file: it comes from the environment variable `HEADGATE_PASSWORD`, or from the variable,
file or command that the file names.

<!-- Made by tools/generate_configuration.py from src/headgate/config/ and src/headgate/policies.py; change the
descriptions there. -->
"""

_HEAD_OF_KEYS = "| key | value | default | meaning |\n|---|---|---|---|"

SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The file", PipelineConfig),
    ("`[source]`", SourceConfig),
    ("`[target]`", TargetConfig),
    ("`[target.kafka]`", KafkaTargetConfig),
    ("`[signals]`", SignalsConfig),
    ("`[signals.kafka]`", KafkaChannelConfig),
    ("`[ui]`", UiConfig),
    ("`[notifications]`", NotificationsConfig),
    ("`[notifications.kafka]`", NotificationTopicConfig),
    ("`[notifications.webhook]`", WebhookConfig),
    ("`[schema_changes]`", SchemaChangesConfig),
    ('`[tables."db.table"]`', TableConfig),
)


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_section(title, model) for title, model in SECTIONS)


def spark_page() -> str:
    """docs/reference/spark.md with the current table of options."""
    rows = [f"| `{name}` | {text}{_default_option(name)} |" for name, text in sorted(OPTION_HELP.items())]
    return _with_rows(SPARK_PAGE, "| option | meaning |\n|---|---|", rows)


def relay_page() -> str:
    """docs/reference/relay.md with the current table of keys."""
    return _with_rows(RELAY_PAGE, _HEAD_OF_KEYS, _rows(RelaySettings))


def _with_rows(page: Path, head: str, rows: list[str]) -> str:
    """The page with these rows below the head of its table."""
    begin, _, rest = page.read_text(encoding="utf-8").partition(f"\n{head}\n")
    _, _, end = f"\n{rest}".partition("\n\n")
    return "\n".join([begin, head, *rows, "", end])


def _default_option(name: str) -> str:
    option = Options.model_fields.get(name)
    if option is None or option.is_required() or option.default_factory or option.default in (None, ()):
        return ""
    return f" (default {_default(option)})".replace('"', "")


def _section(title: str, model: type[BaseModel]) -> str:
    summary = (model.__doc__ or "").split("\n\n", 1)[0]
    return f"\n## {title}\n\n{summary}\n\n" + "\n".join([_HEAD_OF_KEYS, *_rows(model)]) + "\n"


def _rows(model: type[BaseModel]) -> list[str]:
    return [
        f"| `{field.alias or name}` | {_type(field.annotation)} | {_default(field)} | {field.description} |"
        for name, field in model.model_fields.items()
    ]


def _type(kind: object) -> str:
    arguments = [one for one in typing.get_args(kind) if one is not type(None) and one is not Ellipsis]
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return " or ".join(f'`"{value}"`' if isinstance(value, str) else f"`{value}`" for value in arguments)
    if origin in (types.UnionType, typing.Union, typing.Annotated):
        return _type(arguments[0])
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return "section"
    return {str: "text", Path: "text", int: "whole number", float: "number", bool: "`true`, `false`"}[
        typing.cast("type", kind)
    ]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value == {} or value is PydanticUndefined or isinstance(value, BaseModel):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    value = value[0] if isinstance(value, tuple) and len(value) == 1 else value
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SPARK_PAGE.write_text(spark_page(), encoding="utf-8")
    RELAY_PAGE.write_text(relay_page(), encoding="utf-8")
