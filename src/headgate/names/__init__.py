"""Names of databases, tables and columns: how they are compared, and quoted for SQL and Arrow."""

from headgate.names._names import in_utf8mb3, lower_name, numbered, quote_name

__all__ = ["in_utf8mb3", "lower_name", "numbered", "quote_name"]
