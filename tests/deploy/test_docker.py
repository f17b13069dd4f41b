"""The image's Dockerfile: what it copies is there, and it runs as a user without rights."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from headgate.web.probes import ALIVE, READY
from tests.dockerfile import Stage, parse_dockerfile

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/docker"


@pytest.fixture(scope="module")
def stages() -> list[Stage]:
    return parse_dockerfile((FOLDER / "Dockerfile").read_text("utf-8"))


def test_what_is_copied_is_there_and_in_the_context(stages: list[Stage]) -> None:
    included = re.findall(r"^!(.+)$", (FOLDER / "Dockerfile.dockerignore").read_text("utf-8"), re.MULTILINE)
    copied = {
        source
        for stage in stages
        for copy in stage.all("COPY")
        if "from" not in copy.flags
        for source in copy.words[:-1]
    }
    assert copied == set(included)
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_what_is_executed_can_be(stages: list[Stage]) -> None:
    (entry,) = stages[-1].all("ENTRYPOINT")
    (source,) = [copy.words[0] for copy in stages[-1].all("COPY") if copy.words[-1].endswith(entry.words[0])]
    assert os.access(ROOT / source, os.X_OK)
    assert stages[-1].all("CMD")[0].text.startswith("["), "a shell would get the signals"


def test_stages_build_on_one_standard_image(stages: list[Stage]) -> None:
    """No registry's host, and a Python that has been run whole."""
    names = {stage.name for stage in stages}
    (image,) = {stage.base for stage in stages} - names
    assert fnmatch(image, "python:3.11-slim-*")


def test_it_runs_without_rights(stages: list[Stage]) -> None:
    (user,) = stages[-1].all("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user.text), "a number, so that a platform can see that it is not root"
    after = stages[-1].instructions[stages[-1].instructions.index(user) :]
    assert not {"RUN", "COPY"} & {one.name for one in after}


def test_the_health_check_asks_what_the_page_answers(stages: list[Stage]) -> None:
    (check,) = stages[-1].all("HEALTHCHECK")
    port, path = re.findall(r"127\.0\.0\.1:(\d+)(/\w+)", check.text)[0]
    assert path in (ALIVE, READY)
    assert stages[-1].all("EXPOSE")[0].words == [port]


def test_folders_that_are_written_are_volumes(stages: list[Stage]) -> None:
    (volumes,) = stages[-1].all("VOLUME")
    variables = dict(re.findall(r"(\w+)=(\S+)", stages[-1].all("ENV")[0].text))
    for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        assert any(Path(variables[name]).is_relative_to(volume) for volume in volumes.words), name
