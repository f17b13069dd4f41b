"""Where the private server comes from: the machine's own sources, or one clear line."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate_testing import _mysql_program

DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian http://second.example/debian/
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""
ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/some/key.gpg] http://third.example/debian bookworm main contrib # the rest
deb-src http://third.example/debian bookworm main
deb https://vendor.example/linux/debian bookworm stable
"""


def test_both_styles_of_sources_are_read(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/debian.sources").write_text(DEB822)
    (tmp_path / "sources.list").write_text(ONE_LINE)
    assert _mysql_program._written_sources(tmp_path) == [
        ["http://third.example/debian", "bookworm", "main", "contrib"],
        ["https://vendor.example/linux/debian", "bookworm", "stable"],
        ["http://mirror.example/debian", "bookworm", "main"],
        ["http://mirror.example/debian", "bookworm-updates", "main"],
        ["http://second.example/debian/", "bookworm", "main"],
        ["http://second.example/debian/", "bookworm-updates", "main"],
        ["http://mirror.example/debian-security", "bookworm-security", "main"],
    ]


def test_only_mirrors_of_the_machines_release_count(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "https://vendor.example/linux/debian bookworm stable",
        "http://odd.example/mirror bookworm main",
        "http://mirror.example/debian bookworm main",
        "http://mirror.example/debian bookworm-updates main",
        "http://mirror.example/debian-security bookworm-security main",
    ]
    monkeypatch.setattr(_mysql_program, "_run", lambda *command: "\n".join(lines))
    monkeypatch.setattr(
        _mysql_program, "_written_sources", lambda: [["http://mirror.example/debian/", "bookworm", "main"]]
    )
    assert _mysql_program._mirrors("bookworm") == ["http://mirror.example/debian", "http://odd.example/mirror"]


@pytest.mark.parametrize(
    ("release", "distribution", "suite"),
    [
        ({"ID": "debian", "VERSION_CODENAME": "bookworm"}, "debian", "sid"),
        ({"ID": "ubuntu", "ID_LIKE": "debian", "VERSION_CODENAME": "noble"}, "ubuntu", "noble"),
        ({"ID": "mint", "ID_LIKE": "ubuntu debian", "UBUNTU_CODENAME": "noble"}, "ubuntu", "noble"),
        ({"ID": "raspbian", "ID_LIKE": "debian", "VERSION_CODENAME": "bookworm"}, "debian", "sid"),
    ],
)
def test_each_distribution_has_its_suite(
    monkeypatch: pytest.MonkeyPatch, release: dict[str, str], distribution: str, suite: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    recipe = _mysql_program._recipe(release)
    assert (recipe.distribution, recipe.suites[0]) == (distribution, suite)


@pytest.mark.parametrize(
    ("tools", "release", "message"),
    [(False, "debian", "needs apt-get, apt-cache, dpkg"), (True, "fedora", "Debian and Ubuntu only")],
)
def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch, tools: bool, release: str, message: str) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: "/usr/bin/x" if tools else None)
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": release})
    with pytest.raises(ConfigError, match=message) as caught:
        _mysql_program.private_program()
    assert "HEADGATE_TEST_MYSQL_URL" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_newest_server_package_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "mysql-server-core-8.0 - MySQL\nmysql-server-core-8.4 - MySQL\n"
    monkeypatch.setattr(_mysql_program, "_run", lambda *command: listed)
    assert _mysql_program._server_package([]) == "mysql-server-core-8.4"
    monkeypatch.setattr(_mysql_program, "_run", lambda *command: listed + "mysql-server-core - MySQL\n")
    assert _mysql_program._server_package([]) == "mysql-server-core"


def program(folder: Path) -> _mysql_program.MySQLProgram:
    """A server that looks for its components in ``folder/plugins``."""
    (folder / "plugins").mkdir()
    server = folder / "mysqld"
    server.write_text(f"#!/bin/sh\necho 'plugin-dir     {folder}/plugins/'\necho 'plugin-load'\n")
    server.chmod(0o755)
    return _mysql_program.MySQLProgram((str(server), "--no-defaults"), (9, 7, 4))


def test_a_keyring_stands_beside_a_link_to_the_server(tmp_path: Path) -> None:
    plain, keyring = program(tmp_path), tmp_path / "keyring"
    keyring.mkdir()
    component = tmp_path / "plugins/component_keyring_file.so"
    component.touch()
    with_keyring = plain.with_keyring(keyring)
    assert with_keyring.command == (str(keyring / "mysqld"), "--no-defaults", f"--plugin-dir={keyring}")
    assert (keyring / "mysqld").resolve() == tmp_path / "mysqld"
    assert (keyring / "component_keyring_file.so").resolve() == component
    assert json.loads((keyring / "mysqld.my").read_text()) == {"components": "file://component_keyring_file"}
    assert json.loads((keyring / "component_keyring_file.cnf").read_text())["path"] == str(keyring / "keys")


def test_a_client_program_is_beside_the_server_or_in_bin(tmp_path: Path) -> None:
    (tmp_path / "sbin").mkdir()
    (tmp_path / "bin").mkdir()
    server = program(tmp_path / "sbin")
    with pytest.raises(ConfigError, match="mysqlbinlog is not installed beside"):
        server.client("mysqlbinlog")
    (tmp_path / "bin/mysqlbinlog").touch()
    assert server.client("mysqlbinlog") == (str(tmp_path / "bin/mysqlbinlog"), "--no-defaults")


def test_a_server_without_the_keyring_component(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no component_keyring_file: install its component packages"):
        program(tmp_path).with_keyring(tmp_path)


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("mysqld  Ver 8.0.45-2 for Linux on x86_64 ((Debian))", (8, 0, 45)),
        ("mysqld  Ver 8.0.26 for Linux on x86_64 (MySQL Community Server - GPL)", (8, 0, 26)),
        ("mysqld  Ver 8.0.25 for Linux on x86_64 (MySQL Community Server - GPL)", None),
        ("mysqld  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)", None),
    ],
)
def test_the_server_on_path_is_used_if_it_is_recent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, version: tuple[int, int, int] | None
) -> None:
    server = tmp_path / "mysqld"
    server.write_text(f"#!/bin/sh\necho '{printed}'\n")
    server.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name, path=None: str(server) if name == "mysqld" else None)
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "fedora"})
    installed = _mysql_program.installed_program()
    assert (installed and installed.version) == version
    if installed is None:
        with pytest.raises(ConfigError, match="install MySQL"):
            _mysql_program.find_program()
    else:
        assert _mysql_program.find_program() == installed
        assert installed.plugin("group_replication") is None
