"""The folder for images of a run's batches: where it is, and what earlier runs left."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyspark
import pytest

from headgate.carrier import ImageFolder
from headgate.files import try_lock
from headgate.lake import Lake
from headgate.pipeline._image_folder import image_folder, remove_other_images
from tests.fix_carrier import FakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = FakeTable().batch(1, [("c", 1, 1, "x")])


def session(master: str) -> SparkSession:
    return cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(master=master)))


def filled(path: Path) -> Path:
    ImageFolder(path, least_bytes=0).serialised(BATCH)
    assert [*path.iterdir()]
    return path


def test_on_this_machine_it_is_in_sparks_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = [tmp_path / f"spark-{number}" / f"userFiles-{number}" for number in range(2)]
    monkeypatch.setattr(pyspark.SparkFiles, "getRootDirectory", lambda: str(roots[0]))
    killed, running = (filled(roots[1] / f"headgate-images-{uuid.uuid4().hex}") for _ in range(2))
    locks = [path.with_name(f"{path.name}.lock") for path in (killed, running)]
    locks[0].touch()
    roots[0].mkdir(parents=True)
    with try_lock(locks[1]), image_folder(session("local[2]"), Lake("s3://bucket/lake")) as images:
        assert sorted(roots[1].iterdir()) == sorted([running, locks[1]]), "what a killed run left is gone"
        assert Path(filled(Path(images.path))).parent == roots[0]
        with image_folder(session("local[2]"), Lake("/other")) as others:
            assert Path(images.path).exists(), "other runs of this machine are not disturbed"
            filled(Path(others.path))
    assert not [*roots[0].iterdir()]


def test_a_folder_that_another_run_removes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [tmp_path / f"spark-{number}" / f"userFiles-{number}" for number in range(2)]
    roots[0].mkdir(parents=True)
    filled(roots[1] / f"headgate-images-{uuid.uuid4().hex}")
    monkeypatch.setattr(pyspark.SparkFiles, "getRootDirectory", lambda: str(roots[0]))
    scandir = os.scandir

    def vanish(path: str | int) -> Iterator[os.DirEntry[str]]:
        if not isinstance(path, int) and Path(path) == roots[1] and roots[1].exists():
            roots[1].rename(tmp_path / "gone")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanish)
    with image_folder(session("local[2]"), Lake("s3://bucket/lake")) as images:
        assert Path(filled(Path(images.path))).parent == roots[0]
    assert not roots[1].exists(), "it did vanish"


def test_on_a_cluster_it_is_in_the_lake(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    other = filled(Path(lake.images, "other"))
    with image_folder(session("spark://10.0.0.1:7077"), lake) as images:
        assert filled(Path(images.path)).parent == Path(lake.images)
        images.clear()
        assert not Path(images.path).exists()
        filled(Path(images.path))  # an attempt that did not count goes on after its batch
    assert [*other.iterdir()], "a run that commits nothing removes no other run's images"
    with image_folder(session("spark://10.0.0.1:7077"), lake) as images:
        filled(Path(images.path))
        remove_other_images(lake, images)
        assert [*Path(lake.images).iterdir()] == [Path(images.path)]
    assert not Path(lake.images).exists()
