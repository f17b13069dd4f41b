"""The program of private MySQL servers: an installed ``mysqld``, else the one of the distribution's packages.

Fetching these does not change the machine. A private apt root (separate state, cache and package status) uses the
mirror of the machine's apt sources, so signatures are checked as usual. The packages and all their dependencies, the C
library and its loader included, are unpacked into one folder of the user's cache, so the server also runs if its C
library is newer than the machine's.

Debian stable has no MySQL, so its packages come from ``sid``; Ubuntu has them in every release.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import ConfigError
from headgate.files import cache_folder, make_once
from headgate.mysql import Version, is_supported, parse_version

__all__ = ["URL_VARIABLE", "MySQLProgram", "find_program", "installed_program", "private_program"]

URL_VARIABLE = "HEADGATE_TEST_MYSQL_URL"
"""Names a server to use instead of starting one: ``mysql://user:password@host:port``."""

OLDEST: Version = (8, 0, 26)
"""Oldest MySQL with the terms used here (CHANGE REPLICATION SOURCE TO, START REPLICA, source/replica settings)."""

REMEDY = (
    f"install MySQL {'.'.join(map(str, OLDEST))} or newer so that mysqld is on PATH, or name a server in {URL_VARIABLE}"
)


@dataclass(frozen=True)
class MySQLProgram:
    """How to run a ``mysqld``: the start of its command line, and its version."""

    command: tuple[str, ...]
    version: Version

    @property
    def version_text(self) -> str:
        """The version as ``9.7.4``."""
        return ".".join(map(str, self.version))

    def plugin(self, name: str) -> Path | None:
        """Return the file of a plugin or component (``component_keyring_file``); None if the server has none."""
        folder = _plugin_folder(self.command)
        file = folder / f"{name}.so" if folder is not None else None
        return file if file is not None and file.exists() else None

    def client(self, name: str) -> tuple[str, ...]:
        """Return the start of the command line of another program of the same packages, such as ``mysqlbinlog``.

        :raises ConfigError: it is not installed.
        """
        index = next(i for i, word in enumerate(self.command) if Path(word).name == "mysqld")
        folder = Path(self.command[index]).resolve().parent
        for file in (folder / name, folder.parent / "bin" / name):
            if file.exists():
                return (*self.command[:index], str(file), "--no-defaults")
        raise ConfigError(f"{name} is not installed beside {self.command[index]}: install MySQL's client programs")

    def with_keyring(self, folder: Path) -> MySQLProgram:
        """Return the same server with a keyring in a file, which ``binlog_encryption`` needs.

        A component that must be loaded first is named by a manifest next to the program, and has its settings next to
        it (MySQL Reference Manual, "Keyring Component Installation"). So ``folder`` gets links to both.

        :param folder: an existing folder that only this server uses.
        :raises ConfigError: the server has no such component.
        """
        index = next(i for i, word in enumerate(self.command) if Path(word).name == "mysqld")
        component = self.plugin(KEYRING)
        if component is None:
            raise ConfigError(f"mysqld {self.version_text} has no {KEYRING}: install its component packages")
        (folder / "mysqld").symlink_to(self.command[index])
        (folder / component.name).symlink_to(component)
        (folder / "mysqld.my").write_text(json.dumps({"components": f"file://{KEYRING}"}))
        (folder / f"{KEYRING}.cnf").write_text(json.dumps({"path": str(folder / "keys"), "read_only": False}))
        words = (*self.command[:index], str(folder / "mysqld"), *self.command[index + 1 :])
        return MySQLProgram((*words, f"--plugin-dir={folder}"), self.version)


KEYRING = "component_keyring_file"
"""The component that keeps keys in a file."""


def _plugin_folder(command: Sequence[str]) -> Path | None:
    """Return the folder in which a server looks for its plugins and components, if it tells."""
    match = re.search(r"^plugin-dir\s+(\S.*)$", _printed(*command, "--verbose", "--help"), re.MULTILINE)
    return Path(match.group(1)) if match else None


def find_program() -> MySQLProgram:
    """Return the ``mysqld`` on PATH if it is MySQL and recent enough, else the private one (fetched at first use).

    :raises ConfigError: there is none, and none can be fetched; the message has the reason.
    """
    return _on_path() or private_program()


def installed_program() -> MySQLProgram | None:
    """Return the program that :func:`find_program` returns; None if that would have to fetch it first, or cannot."""
    program = _on_path()
    if program is None:
        with contextlib.suppress(ConfigError):
            root = _recipe(_os_release()).root
            program = _program_in(root) if root.exists() else None
    return program


def _on_path() -> MySQLProgram | None:
    path = shutil.which("mysqld") or shutil.which("mysqld", path="/usr/sbin:/usr/local/sbin:/usr/local/mysql/bin")
    if path is not None:
        version = _version((path,))
        if version is not None and version >= OLDEST:
            return MySQLProgram((path, "--no-defaults"), version)
    return None


def _version(command: Sequence[str]) -> Version | None:
    """Return the version by ``mysqld --version``; None if it cannot run or is not MySQL (MariaDB has the name, too)."""
    text = _printed(*command, "--version")
    match = re.search(r"Ver (\S+)", text)
    return parse_version(match[1]) if match is not None and is_supported(match[1], text) else None


def _printed(*command: str) -> str:
    """Return the output of ``mysqld`` with an option that only prints; "" if it fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if run.returncode else run.stdout


@dataclass(frozen=True)
class _Recipe:
    """Where a distribution has MySQL. ``suites`` and ``components`` as in an apt source line."""

    distribution: str
    codename: str
    """The machine's release, whose mirrors are used: they have the other suites, too."""
    suites: tuple[str, ...]
    components: str
    keyring: str

    @property
    def root(self) -> Path:
        """Folder of the unpacked packages."""
        return cache_folder("mysql", f"{self.distribution}-{self.suites[0]}")


def private_program() -> MySQLProgram:
    """Return the server unpacked in the cache folder; the first call fetches about 70 MB through apt.

    :raises ConfigError: this machine has no apt, or apt fails; the message has the reason and the remedy.
    """
    recipe = _recipe(_os_release())
    with make_once(recipe.root) as unfinished:
        if unfinished is not None:
            _fetch(recipe, unfinished)
            _program_in(unfinished)
    return _program_in(recipe.root)


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _recipe(release: dict[str, str]) -> _Recipe:
    if platform.system() != "Linux":
        raise ConfigError(f"no MySQL server: {REMEDY}")
    missing = [tool for tool in ("apt-get", "apt-cache", "dpkg") if shutil.which(tool) is None]
    if missing:
        raise ConfigError(f"no MySQL server, and fetching a private one needs {', '.join(missing)}: {REMEDY}")
    family = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    codename = release.get("UBUNTU_CODENAME") or release.get("VERSION_CODENAME", "")
    if "ubuntu" in family and codename:
        suites = (codename, f"{codename}-updates", f"{codename}-security")
        return _Recipe("ubuntu", codename, suites, "main universe", "/usr/share/keyrings/ubuntu-archive-keyring.gpg")
    if "debian" in family:
        codename = release.get("VERSION_CODENAME", "")
        return _Recipe("debian", codename, ("sid",), "main", "/usr/share/keyrings/debian-archive-keyring.gpg")
    raise ConfigError(
        f"no MySQL server, and a private one can be fetched on Debian and Ubuntu only (this is {family[0]}): {REMEDY}"
    )


def _fetch(recipe: _Recipe, root: Path) -> None:
    """Download the server and all its dependencies, and unpack them into ``root``."""
    mirrors = _mirrors(recipe.codename)
    if not mirrors:
        raise ConfigError(
            f"no MySQL server, and this machine's apt sources name no {recipe.distribution} mirror: {REMEDY}"
        )
    apt = root / "apt"
    for folder in ("state/lists/partial", "cache/archives/partial", "etc"):
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()
    options = _apt_options(apt)
    for number, mirror in enumerate(mirrors):
        lines = [_source_line(recipe, mirror, suite) for suite in recipe.suites]
        (apt / "etc/sources.list").write_text("\n".join(lines) + "\n")
        try:
            _run("apt-get", *options, "-q", "update", "-o", "APT::Update::Error-Mode=any")
            server = _server_package(options)
            _run("apt-get", *options, "-q", "-y", "-d", "--no-install-recommends", "install", server)
            break
        except ConfigError:
            if number + 1 == len(mirrors):
                raise
    for package in sorted((apt / "cache/archives").glob("*.deb")):
        _run("dpkg", "-x", str(package), str(root))
    shutil.rmtree(apt)


def _apt_options(apt: Path) -> list[str]:
    """Return options for apt with a private root, but the machine's proxies and certificates (its apt.conf)."""
    settings = {
        "Dir::Etc::sourcelist": str(apt / "etc/sources.list"),
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-",
        "Dir::Etc::preferencesparts": "-",
        "Dir::State": str(apt / "state"),
        "Dir::State::status": str(apt / "status"),
        "Dir::Cache": str(apt / "cache"),
        "APT::Architecture": _run("dpkg", "--print-architecture").strip(),
        "APT::Default-Release": "",
        # An outdated mirror is good enough: signatures are checked, and nothing is installed on the machine.
        "Acquire::Check-Valid-Until": "false",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    if os.geteuid() == 0:
        settings["APT::Sandbox::User"] = "root"  # the cache folder may be closed to the user _apt
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _mirrors(codename: str) -> list[str]:
    """Return the mirrors of the machine's apt sources for its release, those named like a distribution first."""
    form = "$(SITE) $(RELEASE) $(COMPONENT)"
    listed = _run("apt-get", "indextargets", "--format", form, "Created-By: Packages").splitlines()
    sources = [line.split() for line in listed] + _written_sources()
    mirrors = [words[0] for words in sources if len(words) > 2 and words[1] == codename and "main" in words[2:]]
    unique = list(dict.fromkeys(mirror.rstrip("/") for mirror in mirrors))
    return sorted(unique, key=lambda mirror: not mirror.endswith(("/debian", "/ubuntu")))


def _written_sources(etc: Path = Path("/etc/apt")) -> list[list[str]]:
    """Return [mirror, suite, component…] of every source as it is written (sources.list(5), both styles).

    A machine whose package lists were removed, as in container images, lists no index targets.
    """
    sources: list[list[str]] = []
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))]:
        for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
            words = re.sub(r"\[[^]]*\]", "", line.split("#")[0]).split()
            if words[:1] == ["deb"]:
                sources.append(words[1:])
    for path in sorted((etc / "sources.list.d").glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text(errors="replace")):
            lines = [line for line in stanza.splitlines() if not line.startswith("#")]
            fields = dict(re.findall(r"^([\w-]+):\s*(.*)$", "\n".join(lines), re.MULTILINE))
            uris, suites, components = (fields.get(name, "").split() for name in ("URIs", "Suites", "Components"))
            sources += [[uri, suite, *components] for uri in uris for suite in suites]
    return sources


def _source_line(recipe: _Recipe, mirror: str, suite: str) -> str:
    signed = f"[signed-by={recipe.keyring}] " if Path(recipe.keyring).exists() else ""
    return f"deb {signed}{mirror} {suite} {recipe.components}"


def _server_package(options: Sequence[str]) -> str:
    """Return the newest server package: ``mysql-server-core``, or with its version in the name."""
    listed = _run("apt-cache", *options, "search", "--names-only", "^mysql-server-core(-[0-9.]+)?$")
    names = [line.split()[0] for line in listed.splitlines() if line.strip()]
    if not names:
        raise ConfigError(f"no MySQL server, and this machine's mirror carries no mysql-server-core: {REMEDY}")
    return max(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)] or [1 << 30])


def _run(*command: str) -> str:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"no MySQL server, and {command[0]} could not fetch one ({error}): {REMEDY}") from error
    if run.returncode:
        errors = [line for line in run.stderr.splitlines() if line.startswith(("E:", "W:", "dpkg"))] or ["no message"]
        raise ConfigError(f"no MySQL server, and {command[0]} could not fetch one ({errors[0]}): {REMEDY}")
    return run.stdout


def _program_in(root: Path) -> MySQLProgram:
    """Return the command that runs the server unpacked in ``root`` with its loader and libraries."""
    candidates = [path for base in ("usr/lib", "lib") for path in (root / base).glob("**/ld-linux*.so.*")]
    loaders = [path for path in candidates if path.is_file() and not path.is_symlink()]
    servers = [path for path in (root / "usr/sbin/mysqld", root / "usr/bin/mysqld") if path.exists()]
    if not loaders or not servers:
        raise ConfigError(f"the private MySQL server in {root} is not complete: remove that folder, or {REMEDY}")
    libraries = [folder for base in ("usr/lib", "lib") for folder in (root / base).glob("*-linux-gnu*")]
    share = root / "usr/share/mysql"
    loader = (str(loaders[0]), "--library-path", ":".join(map(str, libraries)), str(servers[0]), "--no-defaults")
    version = _version(loader)
    if version is None:
        raise ConfigError(f"the private MySQL server in {root} does not run: remove that folder, or {REMEDY}")
    command = (
        *loader,
        f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
        f"--plugin-dir={root / 'usr/lib/mysql/plugin'}",
    )
    return MySQLProgram(command, version)
