"""URLs, secrets and what is never shown."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.mysql import PASSWORD_VARIABLE, ConnectionSettings, Secret

WORD = "s3cr3t!"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql://h", ConnectionSettings("h")),
        ("mysql://u@h:3307/", ConnectionSettings("h", 3307, "u")),
        ("mysql://a%40b@[::1]:3306", ConnectionSettings("::1", 3306, "a@b")),
        ("mysql://u@h?tls=required", ConnectionSettings("h", user="u", tls="required")),
        (
            "mysql://h/?tls=verify_ca&tls_ca=/ca.pem&tls_crl=/crl.pem&tls_cert=c&tls_key=k&connect_timeout_seconds=2.5",
            ConnectionSettings(
                "h",
                tls="verify_ca",
                tls_ca="/ca.pem",
                tls_crl="/crl.pem",
                tls_cert="c",
                tls_key="k",
                connect_timeout_seconds=2.5,
            ),
        ),
        ("mysql://u@h/?password_env=PW", ConnectionSettings("h", user="u", secret=Secret(env="PW"))),
        ("mysql://u@h/?password_file=/pw", ConnectionSettings("h", user="u", secret=Secret(file="/pw"))),
        ("mysql://u:p%3Aw@h", ConnectionSettings("h", user="u", secret=Secret(value="p:w"))),
    ],
)
def test_urls(url: str, expected: ConnectionSettings) -> None:
    assert ConnectionSettings.from_url(url) == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "not a MySQL URL"),
        ("postgres://h", "not a MySQL URL"),
        ("mysql://", "not a MySQL URL"),
        ("mysql://h:99999", "not a MySQL URL"),
        ("mysql://[::1", "not a MySQL URL"),
        ("mysql://h:0", "0 is not a port"),
        ("mysql://h/shop", "names no database"),
        ("mysql://h/?tsl=required", "unknown option 'tsl' in the URL; known: tls,"),
        ("mysql://h/?tls=on", "unknown tls mode 'on'; use one of disabled, preferred"),
        ("mysql://h/?tls_cert=c", "belong together"),
        ("mysql://h/?tls=disabled&tls_ca=c", "tls is disabled, but"),
        ("mysql://h/?tls=required&tls_crl=c", "tls_crl is for tls=verify_ca and tls=verify_identity"),
        ("mysql://h/?read_timeout_seconds=soon", "must be a number"),
        ("mysql://h/?read_timeout_seconds=0", "longer than 0"),
        ("mysql://h/?read_timeout_seconds=inf", "at most 31536000 seconds"),
        ("mysql://h/?connect_timeout_seconds=1e9", "at most 31536000 seconds"),
        (f"mysql://u:{WORD}@h/?password_env=PW", "given twice"),
        ("mysql://h/?password_command=id", "unknown option 'password_command' in the URL"),
        (f"mysql://u:{WORD}@h:x", "not a MySQL URL"),
    ],
)
def test_wrong_urls_are_told_without_the_password(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")) as caught:
        ConnectionSettings.from_url(url)
    assert WORD not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_arguments_go_before_the_url() -> None:
    settings = ConnectionSettings.from_url(
        f"mysql://u:{WORD}@h/?tls=disabled", secret=Secret(env="PW"), tls="required", read_timeout_seconds=None
    )
    assert (settings.secret, settings.tls, settings.read_timeout_seconds) == (Secret(env="PW"), "required", 300)
    for setting, secret in (("password_file", Secret(file="/pw")), ("password_command", Secret(command="/pw"))):
        named: dict[str, Any] = {setting: "/pw"}
        assert ConnectionSettings.from_url("mysql://h/?password_env=PW", **named).secret == secret


def test_a_password_is_never_shown() -> None:
    settings = ConnectionSettings.from_url(f"mysql://u:{WORD}@h")
    assert settings.password_in_url
    for text in (repr(settings), str(settings), settings.url, f"{settings.secret} {settings.secret!r}"):
        assert WORD not in text


def test_a_password_in_a_url_stays_in_the_process() -> None:
    settings = ConnectionSettings.from_url(f"mysql://u:{WORD}@h")
    with pytest.raises(ConfigError, match="stays in this process"):
        pickle.dumps(settings)
    named = ConnectionSettings.from_url("mysql://u@h/?password_env=PW&tls=required")
    assert pickle.loads(pickle.dumps(named)) == named
    assert copy.deepcopy(named) == named
    printed = ConnectionSettings("h", secret=Secret(command=f"vault read {WORD}"))
    assert pickle.loads(pickle.dumps(printed)) == printed
    assert str(printed.secret) == "password command vault"


def test_secrets_are_looked_up_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    assert Secret().resolve() == ""
    assert Secret(env=PASSWORD_VARIABLE).resolve() == ""
    monkeypatch.setenv(PASSWORD_VARIABLE, WORD)
    assert Secret().resolve() == WORD
    with pytest.raises(ConfigError, match="environment variable HEADGATE_TEST_OTHER is not set"):
        Secret(env="HEADGATE_TEST_OTHER").resolve()
    monkeypatch.setenv("HEADGATE_TEST_OTHER", "pä ß")
    assert Secret(env="HEADGATE_TEST_OTHER").resolve() == "pä ß"
    file = tmp_path / "pw"
    with pytest.raises(ConfigError, match=r"cannot read the password file .*pw: No such file"):
        Secret(file=str(file)).resolve()
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        Secret(file=str(file)).resolve()
    for content, word in (("pw", "pw"), ("pw\n", "pw"), ("pw\r\n", "pw"), (" p w \n\n", " p w \n")):
        file.write_bytes(content.encode())
        assert Secret(file=str(file)).resolve() == word


@given(user=st.text(min_size=1, max_size=20), port=st.integers(1, 65535))
def test_the_shown_url_reads_back(user: str, port: int) -> None:
    settings = ConnectionSettings("db.example", port, user)
    assert ConnectionSettings.from_url(settings.url) == settings
