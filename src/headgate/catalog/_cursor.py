"""A cursor over the tokens of one statement."""

from __future__ import annotations

from headgate.catalog._tokens import SqlToken
from headgate.names import in_utf8mb3, lower_name

__all__ = ["TokenCursor", "Unclear"]


class Unclear(Exception):
    """The statement does not match the grammar. It never leaves the catalog: the statement becomes ``unknown``."""


class TokenCursor:
    """Tokens of one statement, and the operations in which its grammar is written.

    :param strict: the statement ran in a strict SQL mode.
    """

    def __init__(self, token_list: list[SqlToken], default_db: str, lower_case: bool, strict: bool) -> None:
        while token_list and token_list[-1] == SqlToken("symbol", ";"):
            token_list = token_list[:-1]
        # Bodies of stored programs hold semicolons too, but their first words identify those statements.
        self.many = any(token == SqlToken("symbol", ";") for token in token_list)
        self.tokens = token_list
        self.at = 0
        self.default_db = default_db
        self.lower_case = lower_case
        self.strict = strict

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].upper if at < len(self.tokens) else ""

    def ended(self) -> bool:
        return self.at >= len(self.tokens)

    def skip(self, *words: str) -> bool:
        """Skip exactly this sequence of keywords, if it comes next. Return whether it did."""
        if all(self.peek(i) == word for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def skip_any(self, *words: str) -> bool:
        return any(self.skip(word) for word in words)

    def expect(self, *words: str) -> None:
        if not self.skip(*words):
            raise Unclear

    def end(self) -> None:
        if not self.ended():
            raise Unclear

    def name(self) -> str:
        """Read a bare or quoted name, and return it as the server stores it."""
        if self.ended() or self.tokens[self.at].kind not in ("word", "name") or not self.tokens[self.at].text:
            raise Unclear
        self.at += 1
        return in_utf8mb3(self.tokens[self.at - 1].text)

    def number(self) -> str:
        """Read a number without a sign, and return its text."""
        if self.ended() or self.tokens[self.at].kind != "number":
            raise Unclear
        self.at += 1
        return self.tokens[self.at - 1].text

    def database(self) -> str:
        name = self.name()
        return lower_name(name) if self.lower_case else name

    def table(self) -> tuple[str, str]:
        """Read ``[db.]table``; a leading dot means the default database."""
        if self.skip("."):
            db, table = self.default_db, self.name()
        else:
            db, table = self.default_db, self.name()
            if self.skip("."):
                db, table = table, self.name()
        if not db:
            raise Unclear
        return (lower_name(db), lower_name(table)) if self.lower_case else (db, table)

    def rest(self) -> list[SqlToken]:
        remaining = self.tokens[self.at :]
        self.at = len(self.tokens)
        return remaining
