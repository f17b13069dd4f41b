"""Connections to MySQL: settings and secrets, login and TLS, raw bytes, result sets, server settings."""

from headgate.mysql._binlog_archive import ArchivedLog, BinlogArchive, LogRequest
from headgate.mysql._cascades import cascades, silent_keys
from headgate.mysql._connection import Connection
from headgate.mysql._errors import server_error
from headgate.mysql._facts import ServerFacts, gtid_executed, read_facts, server_identity
from headgate.mysql._login import expect_login
from headgate.mysql._missing import REWRITTEN, missing_error
from headgate.mysql._prerequisites import check_engine, prerequisites, quote_account, try_select, watermarks
from headgate.mysql._required import Prerequisite, Status, check_required, kinds_of_watermark, setting_error
from headgate.mysql._result import select_blocks
from headgate.mysql._settings import PASSWORD_VARIABLE, ConnectionSettings, Secret, TlsMode
from headgate.mysql._stream import ByteStream
from headgate.mysql._versions import LOG_STATUS, Version, is_supported, parse_version
from headgate.mysql._watermarks import commit_watermark

__all__ = [
    "LOG_STATUS",
    "PASSWORD_VARIABLE",
    "REWRITTEN",
    "ArchivedLog",
    "BinlogArchive",
    "ByteStream",
    "Connection",
    "ConnectionSettings",
    "LogRequest",
    "Prerequisite",
    "Secret",
    "ServerFacts",
    "Status",
    "TlsMode",
    "Version",
    "cascades",
    "check_engine",
    "check_required",
    "commit_watermark",
    "expect_login",
    "gtid_executed",
    "is_supported",
    "kinds_of_watermark",
    "missing_error",
    "parse_version",
    "prerequisites",
    "quote_account",
    "read_facts",
    "select_blocks",
    "server_error",
    "server_identity",
    "setting_error",
    "silent_keys",
    "try_select",
    "watermarks",
]
