"""A third kind of position, as MariaDB has it: numbers by domain. Nothing of ``src`` knows it."""

from __future__ import annotations

from typing import Self

from headgate.positions import DumpStart, LogServer, Position


def domain(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Domains(Position):
    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        pieces = [piece.split("#") for piece in text.split(",") if piece]
        position = cls()
        for name, numbers in pieces:
            first, _, last = numbers.partition("-")
            position |= cls({(domain(int(name)), ""): [(int(first), int(last or first))]})
        return position

    @classmethod
    def reads(cls, text: str) -> bool:
        return "#" in text

    def __str__(self) -> str:
        return ",".join(f"{int.from_bytes(name, 'big')}#{first}-{last}" for name, _, first, last in self.intervals())

    def request(self, server: LogServer, executed: Self, *, inside: bool) -> DumpStart:
        return DumpStart(str(executed - self if inside else self).encode())


def domains(last: int, first: int = 1) -> Domains:
    return Domains({(domain(0), ""): [(first, last)]})
