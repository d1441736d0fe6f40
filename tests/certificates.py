"""Certificates for tests, made by the `openssl` command."""

from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path


def make_authority(folder: Path, name: str) -> Path:
    """A certificate authority; the path of its certificate."""
    certificate = folder / f"{name}.pem"
    _openssl("req", "-x509", *_KEY, "-keyout", folder / f"{name}.key", "-out", certificate, "-subj", f"/CN={name}")
    return certificate


def make_certificate(
    folder: Path, authority: Path, name: str, alternative: str, *, ends: datetime | None = None
) -> tuple[Path, Path]:
    """Certificate and key, signed by the authority; `alternative` is the subject alternative name, as `DNS:x`.

    It ends in two days, or at `ends`, to the second.
    """
    certificate, key, request = (folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
    extension = folder / f"{name}.ext"
    extension.write_text(f"subjectAltName={alternative}\n")
    _openssl("req", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    signing = ("-CA", authority, "-CAkey", authority.with_suffix(".key"), "-CAcreateserial", "-extfile", extension)
    if ends is None:
        _openssl("x509", "-req", "-in", request, "-out", certificate, "-days", "2", *signing)
        return certificate, key
    # `x509 -req` of older versions knows whole days only, `ca` knows seconds; it wants a folder of its own.
    (folder / f"{name}.txt").write_text("")
    (folder / f"{name}.cnf").write_text(
        f"[ca]\ndefault_ca=x\n[x]\ndatabase={folder}/{name}.txt\nnew_certs_dir={folder}\ndefault_md=sha256\n"
        f"policy=p\nrand_serial=yes\n[p]\ncommonName=supplied\n"
    )
    when = ("-enddate", f"{ends:%Y%m%d%H%M%S}Z")
    signer = ("-cert", authority, "-keyfile", authority.with_suffix(".key"), "-extfile", extension)
    words = ("ca", "-batch", "-notext", "-config", folder / f"{name}.cnf", "-in", request, "-out", certificate)
    _openssl(*words, *when, *signer)
    return certificate, key


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
