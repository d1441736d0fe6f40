"""Certificates for tests, made by the `openssl` command."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_authority(folder: Path, name: str) -> Path:
    """A certificate authority; the path of its certificate."""
    certificate = folder / f"{name}.pem"
    _openssl("req", "-x509", *_KEY, "-keyout", folder / f"{name}.key", "-out", certificate, "-subj", f"/CN={name}")
    return certificate


def make_certificate(folder: Path, authority: Path, name: str, alternative: str) -> tuple[Path, Path]:
    """Certificate and key, signed by the authority; `alternative` is the subject alternative name, as `DNS:x`."""
    certificate, key, request = (folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
    extension = folder / f"{name}.ext"
    extension.write_text(f"subjectAltName={alternative}\n")
    _openssl("req", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    signing = ("-CA", authority, "-CAkey", authority.with_suffix(".key"), "-CAcreateserial", "-extfile", extension)
    _openssl("x509", "-req", "-in", request, "-out", certificate, "-days", "2", *signing)
    return certificate, key


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
