"""Unusable files of a certificate or a token are refused with the setting, its value and what is allowed."""

import os
from pathlib import Path

import pytest

from barnabas_core.conventions import WebFiles, contradictions
from barnabas_web.visitors import FileRefused, Protection
from harness.certificates import Authority

NAMES = WebFiles("the.certificate", "the.key", "the.token")


def test_a_port_without_files_has_neither_tls_nor_token() -> None:
    protection = Protection()
    assert (protection.context, protection.scheme, protection.admits(b"")) == (None, "http", True)


def test_key_and_certificate_may_be_in_one_file_or_in_two(tmp_path: Path) -> None:
    both = Authority(tmp_path).issue("both")
    (certificate, key) = (tmp_path / "tls.crt", tmp_path / "tls.key")
    certificate.write_text(both.certificate)
    key.write_text(both.key)
    for files in (WebFiles(str(both.file)), WebFiles(str(certificate), str(key))):
        assert Protection(files, NAMES).scheme == "https"


def refused(files: WebFiles) -> str:
    with pytest.raises(FileRefused) as error:
        Protection(files, NAMES)
    return str(error.value)


def test_certificates_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    one, other = authority.issue("one"), authority.issue("other")
    (certificate, other_key) = (tmp_path / "tls.crt", tmp_path / "other.key")
    certificate.write_text(one.certificate)
    other_key.write_text(other.key)
    (locked := tmp_path / "locked.key").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    os.mkfifo(pipe := tmp_path / "pipe")
    nowhere = tmp_path / "nowhere"
    assert refused(WebFiles(str(nowhere))) == (
        f"the.certificate={nowhere}: must be a file that can be read: No such file or directory"
    )
    assert refused(WebFiles(str(pipe))) == f"the.certificate={pipe}: must be a regular file of at most 1048576 bytes"
    assert refused(WebFiles(str(other_key))) == (
        f"the.certificate={other_key}: must hold a certificate and its chain, as PEM"
    )
    no_key = "must hold a private key without a password, as PEM"
    assert refused(WebFiles(str(certificate))) == f"the.certificate={certificate}: {no_key}"
    assert refused(WebFiles(str(certificate), str(locked))) == f"the.key={locked}: {no_key}"
    assert (
        f"the.certificate={certificate}: must hold a certificate that can be used with the private key in {other_key}"
        in (refused(WebFiles(str(certificate), str(other_key))))
    )


@pytest.mark.parametrize("text", ["", "\n", "two words", "line\nline", "umlaut-ä", 'quoted"'])
def test_a_file_without_one_token_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    (token := tmp_path / "token").write_text(text)
    said = refused(WebFiles(str(Authority(tmp_path).issue("one").file), token=str(token)))
    empty = "is empty; " if not text.strip() else ""
    assert said.startswith(f"the.token={token}: {empty}must hold one token of letters, digits and -._~+/")
    assert not text.strip() or text not in said


def test_a_token_or_a_key_without_a_certificate_is_refused() -> None:
    assert list(contradictions(WebFiles("c", "k", "t"), NAMES)) == []
    assert list(contradictions(WebFiles("", "k", "t"), NAMES)) == [
        ("the.key", "k", "must be set together with the.certificate"),
        (
            "the.token",
            "t",
            "must be set together with the.certificate, because without TLS the token would be sent in clear",
        ),
    ]
