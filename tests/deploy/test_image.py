"""The image, built from the Dockerfile by buildah, and run as a container would run it: a user without rights, a root
file system that is read-only, folders for the lake, the cache and temporary files.

No registry is needed: the base is made of Debian's packages, with Debian's Python of the same version. The steps run in
a chroot, because a machine of tests may have no container runtime. That leaves unseen what only a runtime adds: limits,
the health check, the network of its own.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.files import cache_folder, make_once
from headgate_testing import MySQLServer
from tests.dockerfile import Stage, parse_dockerfile
from tests.integration.databases import Database
from tests.integration.wheels import ROOT

DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
PROGRAMS = ("buildah", "mmdebstrap", "unshare", "setpriv")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
AUTHORITIES = Path("/usr/local/share/ca-certificates")
PACKAGES = "ca-certificates,python3,python3-venv,python3-pip"
NAME = "headgate-tests"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="a chroot needs root"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(not SOURCES.exists(), reason="not Debian, with the base's packages"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="tried on x86-64 only"),
]


def run(*command: str | Path, **options: object) -> str:
    """What a program prints; it has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return str(done.stdout)


def buildah(*words: str | Path) -> str:
    """A command of buildah, with images and layers in the cache folder."""
    store = cache_folder("image", "store")
    where = "--root", store, "--runroot", cache_folder("image", "run")
    return run("buildah", *where, *words, env={**os.environ, "BUILDAH_ISOLATION": "chroot"}).strip()


def make_base(image: str) -> None:
    """An image by this name, of Debian's packages, with this machine's certificate authorities; once."""
    if image in buildah("images", "--format", "{{.Name}}:{{.Tag}}"):
        return
    with make_once(cache_folder("image", "base")) as folder:
        if folder is not None:
            release = image.rpartition("-")[2]
            run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", release, folder / "base.tar", SOURCES)
    container = buildah("from", "scratch")
    buildah("add", "-q", container, cache_folder("image", "base") / "base.tar", "/")
    if AUTHORITIES.exists():
        buildah("add", "-q", container, AUTHORITIES, AUTHORITIES)
    link = "ln -s /usr/bin/python3 /usr/local/bin/python; update-ca-certificates"
    buildah("run", container, "--", "sh", "-c", link)
    buildah(
        "config", "--env", "PIP_CERT=/etc/ssl/certs/ca-certificates.crt", "--env", "PIP_DEFAULT_TIMEOUT=180", container
    )
    buildah("commit", "-q", "--rm", container, image)


UNSHARED = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
ENTER = """
set -eu
root=$1 user=$2 folder=$3
shift 3
mount --bind "$root" "$root"
for pair in $MOUNTS; do mount --bind "${pair%%=*}" "$root${pair#*=}"; done
for file in hosts resolv.conf; do
    touch "$root/etc/$file"
    mount --bind "/etc/$file" "$root/etc/$file"
done
mount -t tmpfs -o exec,mode=1777 tmpfs "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs /usr/sbin/chroot --userspec="$user" --groups= "$root" \\
    sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
"""


class Image:
    """The image's files, and a way to run a program on them."""

    def __init__(self, container: str, folder: Path) -> None:
        self.root = buildah("mount", container)
        self.config = json.loads(buildah("inspect", "--type", "image", NAME))["OCIv1"]["config"]
        user = int(self.config["User"].partition(":")[0])
        self._folders = {name: folder / name.strip("/") for name in self.config["Volumes"]}
        for one in self._folders.values():
            one.mkdir()
            os.chown(one, user, user)
        self._folders["/etc/headgate"] = folder / "settings"
        self._folders["/etc/headgate"].mkdir()

    def configure(self, text: str) -> None:
        """Write the file that the image runs by default."""
        (self._folders["/etc/headgate"] / "pipeline.toml").write_text(text)

    def run(self, *words: str, password: str = "", code: int = 0) -> str:
        """What the entry point prints with these words; if the first has a slash, what that program prints."""
        command = words if "/" in words[0] else (*self.config["Entrypoint"], *words)
        settings = dict(pair.split("=", 1) for pair in self.config["Env"])
        mounts = " ".join(f"{source}={target}" for target, source in self._folders.items())
        done = subprocess.run(
            [*UNSHARED, "sh", "-c", ENTER, "sh", self.root, self.config["User"], self.config["WorkingDir"], *command],
            env={**settings, "MOUNTS": mounts, "HEADGATE_PASSWORD": password},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout[-6000:]
        return done.stdout


@pytest.fixture(scope="module")
def container() -> Iterator[str]:
    stages: list[Stage] = parse_dockerfile(DOCKERFILE.read_text("utf-8"))
    make_base(f"docker.io/library/{stages[0].base}")
    ignored = "--ignorefile", f"{DOCKERFILE}.dockerignore"
    buildah("bud", "--layers", "--pull-never", "--network=host", *ignored, "--file", DOCKERFILE, "--tag", NAME, ROOT)
    name = buildah("from", "--pull-never", NAME)
    # Where a runtime would make a folder to mount into.
    Path(buildah("mount", name), "etc/headgate").mkdir()
    yield name
    buildah("rm", name)


@pytest.fixture
def image(container: str, tmp_path: Path) -> Image:
    return Image(container, tmp_path)


def test_who_runs_and_what_it_may_write(image: Image) -> None:
    assert image.run("/usr/bin/id", "-u") == "10001\n"
    for folder in ("/lake", "/cache", "/tmp"):
        image.run("/usr/bin/touch", f"{folder}/new")
    assert "Read-only file system" in image.run("/usr/bin/touch", "/var/tmp/new", code=1)
    assert re.fullmatch(r"headgate \S+\n", image.run("--version"))


def test_a_pipeline(image: Image, mysql_server: MySQLServer, mysql_db: str) -> None:
    """Checked, run twice and compared, by a user who is not in the image; nothing is compiled."""
    Database(mysql_server, mysql_db).do(
        "CREATE TABLE numbers (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO numbers VALUES (1, 'x'), (2, 'y')"
    )
    password = mysql_server._password
    checked = image.run("check", mysql_server.url, "--tables", f"{mysql_db}.*", password=password)
    assert re.search(rf"^ok +tables {mysql_db}\.\* +1$", checked, re.MULTILINE)
    image.configure(
        f"""
        name = "shop"
        source = {{ url = "{mysql_server.url}", tables = ["{mysql_db}.*"] }}
        target = {{ path = "/lake" }}
        spark = {{ master = "local[2]" }}
        """
    )
    first = image.run(*image.config["Cmd"], "--once", password=password)
    assert "compil" not in first
    mysql_server.execute(f"UPDATE `{mysql_db}`.numbers SET v = 'z' WHERE id = 2")
    image.run(*image.config["Cmd"], "--once", password=password)
    assert "1 table is equal" in image.run("verify", image.config["Cmd"][1], password=password)
