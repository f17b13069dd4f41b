"""The instructions of a Dockerfile, as far as ours needs them (Dockerfile reference)."""

from __future__ import annotations

import json
import re
import shlex
from typing import NamedTuple

__all__ = ["Instruction", "Stage", "parse_dockerfile"]


class Instruction(NamedTuple):
    """One instruction, such as ``COPY``; ``text`` is what follows its flags."""

    name: str
    flags: dict[str, str]
    text: str

    @property
    def words(self) -> list[str]:
        """The elements of the exec form, or the words of a line."""
        text = self.text.removeprefix("CMD ")  # of a HEALTHCHECK
        return list(json.loads(text)) if text.startswith("[") else shlex.split(text)


class Stage(NamedTuple):
    """A stage: its base (an image, or a stage before), its name if it has one, what follows FROM."""

    base: str
    name: str
    instructions: list[Instruction]

    def all(self, name: str) -> list[Instruction]:
        return [one for one in self.instructions if one.name == name]


def parse_dockerfile(text: str) -> list[Stage]:
    stages: list[Stage] = []
    plain = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    for line in re.sub(r"\\\n", " ", plain).splitlines():
        if not line.strip():
            continue
        name, _, rest = line.strip().partition(" ")
        flags: dict[str, str] = {}
        while (match := re.match(r"\s*--([\w-]+)=(\S+)\s+", rest)) is not None:
            flags[match[1]] = match[2]
            rest = rest[match.end() :]
        instruction = Instruction(name, flags, rest.strip())
        if name == "FROM":
            base, *alias = instruction.words
            stages.append(Stage(base, alias[1] if alias else "", []))
        else:
            stages[-1].instructions.append(instruction)
    return stages
