"""The loader and the doctor over TLS, with certificates and tokens, against the real server."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from certificates import make_authority, make_certificate
from click.testing import CliRunner
from corpora import build_small_corpus
from far import Far
from headrace.client import Loader, Settings, Tls
from headrace.client.cli.main import main
from headrace.proto.errors import UnauthenticatedError, UnavailableError
from rig import serving, write_run

QUICK = Settings(open_timeout=2, stall_timeout=30, call_timeout=5, backoff=0.02, backoff_max=0.1)
SECRET = "report-0123456789abcdef"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority with certificates of a server and a trainer."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not on this machine")
    folder = tmp_path_factory.mktemp("pki")
    authority = make_authority(folder, "authority")
    make_certificate(folder, authority, "server", "IP:127.0.0.1")
    make_certificate(folder, authority, "trainer", "URI:spiffe://cluster/trainer")
    return folder


def test_mutual_tls(folder: Path, tmp_path: Path, corpus: Path) -> None:
    extra = (
        f'[tls]\ncertificate = "{folder}/server.pem"\nkey = "{folder}/server.key"\n'
        f'client_ca = "{folder}/authority.pem"\n[auth.identities]\n"spiffe://cluster/trainer" = "report"\n'
    )
    tls = Tls(ca=folder / "authority.pem", cert=folder / "trainer.pem", key=folder / "trainer.key")
    with serving(tmp_path, [write_run(tmp_path, corpus)], extra=extra) as server:
        with Loader(server.address, "r", tls=tls, settings=QUICK) as loader:
            assert [next(loader).step for _ in range(3)] == [0, 1, 2]
        for other in (None, Tls(ca=folder / "authority.pem")):
            with Loader(server.address, "r", tls=other, settings=QUICK) as loader, pytest.raises(UnavailableError):
                next(loader)
        options = [f"--{name}={path}" for name, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key))]
        result = CliRunner().invoke(main, ["doctor", "--server", server.address, *options])
        assert result.exception is None, result.output
        assert "rows arrive whole" in result.output


def test_a_server_far_away(folder: Path, tmp_path: Path, corpus: Path) -> None:
    """0.6 s there and back: a connection over TLS takes 1.2 s to come about, and prefetch hides the rest."""
    extra = f'[tls]\ncertificate = "{folder}/server.pem"\nkey = "{folder}/server.key"\n'
    tls = Tls(ca=folder / "authority.pem")
    settings = Settings(open_timeout=20, in_flight=8)
    with (
        serving(tmp_path, [write_run(tmp_path, corpus, lead=64)], extra=extra) as server,
        Far(server.address, 0.3) as far,
        Loader(far.address, "r", tls=tls, settings=settings) as loader,
    ):
        begun = time.monotonic()
        assert [next(loader).step for _ in range(17)] == list(range(17))
        # Two rounds of eight calls after the first; one by one they would take 10 s.
        assert time.monotonic() - begun < 8


def test_renewed_certificates_are_used_when_the_connection_is_made_again(
    folder: Path, tmp_path: Path, corpus: Path
) -> None:
    for name in ("server.pem", "server.key"):
        shutil.copy(folder / name, tmp_path / name)
    ca = tmp_path / "ca.pem"
    shutil.copy(folder / "authority.pem", ca)
    extra = '[tls]\ncertificate = "server.pem"\nkey = "server.key"\n'
    with (
        serving(tmp_path, [write_run(tmp_path, corpus)], extra=extra) as server,
        Loader(server.address, "r", tls=Tls(ca=ca), settings=QUICK) as loader,
    ):
        assert [next(loader).step for _ in range(5)] == list(range(5))
        server.kill()
        newer = make_authority(tmp_path, "newer")
        make_certificate(tmp_path, newer, "server", "IP:127.0.0.1")
        server.start()
        shutil.copy(newer, ca)
        assert [next(loader).step for _ in range(20)] == list(range(5, 25))


def test_tokens(tmp_path: Path, corpus: Path) -> None:
    tokens, mine = tmp_path / "tokens.toml", tmp_path / "token"
    tokens.write_text(f'[[token]]\nname = "trainer"\nscope = "report"\ntoken = "{SECRET}"\n')
    with serving(tmp_path, [write_run(tmp_path, corpus)], extra=f'[auth]\ntokens = "{tokens}"\n') as server:
        with Loader(server.address, "r", settings=QUICK) as loader, pytest.raises(UnauthenticatedError):
            next(loader)
        mine.write_text(f"{SECRET}\n")
        with Loader(server.address, "r", token_file=mine, settings=QUICK) as loader:
            assert next(loader).step == 0
        result = CliRunner().invoke(main, ["doctor", "--server", server.address, f"--token-file={mine}"])
        assert result.exception is None, result.output
        result = CliRunner().invoke(main, ["doctor", "--server", server.address])
        assert result.exit_code == 1
        assert "FAIL  runs" in result.output
