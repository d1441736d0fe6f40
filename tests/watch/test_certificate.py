"""The end of a certificate is read from real ones, and on /metrics follows the file."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from headrace.server.service.certificate import not_after
from headrace.server.service.exposition import certificate_end


def make(path: Path, *, days: int, kind: str = "rsa:2048") -> Path:
    """A certificate that this machine's openssl signs for itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("`openssl` is not on this machine (apt-get install openssl)")
    words = ["-newkey", kind, "-nodes", "-days", str(days), "-subj", "/CN=headrace", "-keyout", f"{path}.key"]
    subprocess.run([openssl, "req", "-x509", *words, "-out", str(path)], check=True, capture_output=True)
    return path


def said(path: Path) -> datetime:
    """What openssl says."""
    words = ["openssl", "x509", "-enddate", "-noout", "-in", str(path)]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    return datetime.strptime(text, "notAfter=%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)


@pytest.mark.parametrize("days", [1, 365, 20_000, 30_000])
def test_the_end_is_what_openssl_says(tmp_path: Path, days: int) -> None:
    """Before 2050 certificates write it in another form than after."""
    path = make(tmp_path / "cert.pem", days=days, kind="ed25519")
    assert not_after(path.read_text()) == said(path)
    assert not_after(f"some words\n{path.read_text()}{path.read_text()}") == said(path)


def test_what_is_no_certificate(tmp_path: Path) -> None:
    path = make(tmp_path / "cert.pem", days=1)
    lines = path.read_text().splitlines(keepends=True)
    for text in (
        "",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "".join([*lines[:4], lines[-1]]),
    ):
        with pytest.raises(ValueError, match="certificate"):
            not_after(text)


def test_the_metric_follows_the_file(tmp_path: Path) -> None:
    path = make(tmp_path / "cert.pem", days=1)
    end = certificate_end(path)
    assert end() == said(path).timestamp()
    make(path, days=90)
    assert end() == said(path).timestamp()
    path.unlink()
    assert end() == 0.0
    assert certificate_end(None)() is None
