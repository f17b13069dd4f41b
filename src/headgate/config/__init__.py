"""The pipeline's configuration file, as frozen values.

``pipeline.toml``::

    name = "shop"
    [source]
    url = "mysql://headgate@127.0.0.1:3306"    # password from $HEADGATE_PASSWORD or password_file
    tables = ["shop.*", "!shop.tmp_*"]          # globs on db.table; ! removes; the last match wins
    [target]
    path = "./lake"                             # a folder, or a URI such as s3a://bucket/lake
    mode = "current"                            # or ["current", "changelog"]
    [spark]                                     # any spark.* setting
    [tables."shop.orders"]                      # policies of one table

All mistakes of a file are one ``ConfigError``, each a line that names the key, the value and what is accepted. These
values never hold a password, only where it is. docs/reference/configuration.md, which has all keys, is generated from
the descriptions here and in ``headgate.policies`` (``tools/generate_configuration.py``). docs/architecture/config.md
tells how to add a key.
"""

from __future__ import annotations

from headgate.config._explain import Mistakes, checked, explain
from headgate.config._file import ConfigFile, check_change
from headgate.config._interfaces import (
    KafkaChannelConfig,
    NotificationsConfig,
    NotificationTopicConfig,
    SignalsConfig,
    SignalTopicConfig,
    UiConfig,
    WebhookConfig,
)
from headgate.config._model import (
    SECTION,
    Conflict,
    FilePath,
    LocalPath,
    Model,
    RulesByTable,
    VariableName,
    is_server_url,
    is_table,
    split_url,
)
from headgate.config._parse import load_config, parse_config, with_snapshot_mode
from headgate.config._pipeline import PipelineConfig
from headgate.config._relay import SCNS_OF_COLUMNS, RelaySettings, SchemaTypes, ScnKind
from headgate.config._routes import SHARD_COLUMN, RouteConfig
from headgate.config._schema_changes import ChangePolicy, SchemaChangesConfig
from headgate.config._server import PASSWORD_NAMES, ServerLogin
from headgate.config._source import (
    InconsistentImages,
    LockHold,
    SnapshotMode,
    SourceConfig,
    SourceSettings,
    TableConfig,
    Watermark,
)
from headgate.config._target import KafkaTargetConfig, TargetConfig

__all__ = [
    "PASSWORD_NAMES",
    "SCNS_OF_COLUMNS",
    "SECTION",
    "SHARD_COLUMN",
    "ChangePolicy",
    "ConfigFile",
    "Conflict",
    "FilePath",
    "InconsistentImages",
    "KafkaChannelConfig",
    "KafkaTargetConfig",
    "LocalPath",
    "LockHold",
    "Mistakes",
    "Model",
    "NotificationTopicConfig",
    "NotificationsConfig",
    "PipelineConfig",
    "RelaySettings",
    "RouteConfig",
    "RulesByTable",
    "SchemaChangesConfig",
    "SchemaTypes",
    "ScnKind",
    "ServerLogin",
    "SignalTopicConfig",
    "SignalsConfig",
    "SnapshotMode",
    "SourceConfig",
    "SourceSettings",
    "TableConfig",
    "TargetConfig",
    "UiConfig",
    "VariableName",
    "Watermark",
    "WebhookConfig",
    "check_change",
    "checked",
    "explain",
    "is_server_url",
    "is_table",
    "load_config",
    "parse_config",
    "split_url",
    "with_snapshot_mode",
]
