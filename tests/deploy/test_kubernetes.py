"""The Kubernetes manifests: probes and paths are those of the code, pipeline files are valid, both forms are alike."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from headgate.config import PipelineConfig, parse_config
from headgate.web.probes import ALIVE, READY
from tests.dockerfile import parse_dockerfile

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
SECRETS = {"common": ("password", "token"), "s3": ("access-key", "secret-key")}


def load(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text("utf-8"))


def pod(name: str) -> Any:
    """The pod of a manifest, below a template or two."""
    spec = load(name)["spec"]
    return spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"]


def config_of(name: str) -> PipelineConfig:
    return parse_config((FOLDER / name).read_text("utf-8"))


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.yaml")), ids=lambda file: str(file.relative_to(FOLDER)))
def test_names_in_a_kustomization_exist(file: Path) -> None:
    document = yaml.safe_load(file.read_text("utf-8"))
    assert document["kind"]
    for name in re.findall(r"^ *(?:- |- path: )([\w./-]+\.(?:yaml|toml)|\.\./\w+)$", file.read_text(), re.MULTILINE):
        assert (file.parent / name).exists(), name


@pytest.mark.parametrize("name", ["common/pipeline.toml", "s3/pipeline.toml"])
def test_pipeline_files_are_valid_and_fit_the_pod(name: str) -> None:
    config = config_of(name)
    container = pod("follow/deployment.yaml")["containers"][0]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    (port,) = container["ports"]
    assert (config.ui.port, config.ui.host, port["name"]) == (port["containerPort"], "0.0.0.0", "page")
    for file in (config.source.password_file, config.ui.token_file):
        assert file is not None
        assert str(Path(file).parent) in mounts
        assert Path(file).name in SECRETS["common"]
    assert config.target.path in mounts or str(config.target.path).startswith("s3a://")


def test_probes_ask_what_the_page_answers() -> None:
    (container,) = pod("follow/deployment.yaml")["containers"]
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in probes.values()} == {"page"}

    assert [probe["path"] for probe in probes.values()] == [ALIVE, ALIVE, READY]
    assert load("follow/service.yaml")["spec"]["ports"][0]["targetPort"] == "page"


def test_both_forms_have_the_same_pod() -> None:
    """But for what runs in it, and what only a page needs."""
    follows, once = pod("follow/deployment.yaml"), pod("once/cronjob.yaml")
    assert once.pop("restartPolicy") == "Never"
    (page,), (job,) = follows["containers"], once["containers"]
    assert [word for word in job.pop("args") if word != "--once"] == page.pop("args")
    for name in ("ports", "startupProbe", "livenessProbe", "readinessProbe"):
        del page[name]
    assert follows == once


def test_the_pods_user_and_folders_are_those_of_the_image() -> None:
    image = parse_dockerfile((ROOT / "deploy/docker/Dockerfile").read_text("utf-8"))[-1]
    manifest = pod("follow/deployment.yaml")
    security, (container,) = manifest["securityContext"], manifest["containers"]
    assert image.all("USER")[0].text == f"{security['runAsUser']}:{security['runAsGroup']}"
    assert security["runAsNonRoot"] is container["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert {*image.all("VOLUME")[0].words, "/tmp"} <= set(mounts)
    assert container["args"][:2] == image.all("CMD")[0].words


def test_a_wrong_file_ends_the_job() -> None:
    job = load("once/cronjob.yaml")["spec"]
    assert job["concurrencyPolicy"] == "Forbid", "one driver writes a lake"
    (rule,) = job["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.parametrize("form", ["follow", "once", "s3"])
def test_kustomize_builds_it(form: str, tmp_path: Path) -> None:
    """Only with the secrets, which are not in the repository."""
    folder = shutil.copytree(FOLDER, tmp_path / "kubernetes")
    command = ["kubectl", "kustomize", str(folder / form)]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    for where, names in SECRETS.items():
        for name in names:
            (folder / where / name).write_text("x" * 16)
    built = subprocess.run(command, capture_output=True, check=True).stdout
    kinds = {document["kind"] for document in yaml.safe_load_all(built)}
    kept = set() if form == "s3" else {"PersistentVolumeClaim"}
    assert kinds == {"ConfigMap", "Secret", *kept, *(["CronJob"] if form == "once" else ["Deployment", "Service"])}
    assert (b"/lake" in built.replace(b"s3a://bucket/lake", b"")) == bool(kept)
