"""The mixer over TLS with a token: its service as MIXER.toml says it, its commands by the options all commands take."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from headrace.client.cli.mixer import mixer
from headrace.proto.errors import UnauthenticatedError, UnavailableError, UsageError
from mixer_rig import DOCUMENTS, run_toml
from rig import serving

TOKENS = """
[[token]]
name = "mixer"
scope = "operate"
token = "a-token-of-the-mixer"
[[token]]
name = "sweeper"
scope = "admin"
token = "a-token-of-the-sweeper"
"""


def certificate(folder: Path) -> None:
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=here"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "server.key", "-out", "server.pem"]
    subprocess.run(["openssl", *words.split(), *names], cwd=folder, check=True, capture_output=True)


def look(folder: Path, address: str, *lines: str) -> Result:
    text = "\n".join(["[mixer]", 'run = "r"', f'server = "{address}"', *lines])
    (folder / "MIXER.toml").write_text(text + "\n")
    return CliRunner().invoke(mixer, ["serve", str(folder / "MIXER.toml"), "--dry-run"])


def ask(server: str, folder: Path, *words: str, token: str = "token") -> Result:
    options = ["--server", server, "--ca", str(folder / "server.pem"), "--token-file", str(folder / token)]
    return CliRunner().invoke(mixer, [*words, *options])


def check_commands(folder: Path, server: str) -> None:
    """Each command that connects, on a server that refuses whoever brings no token."""
    out, run = str(folder / "out"), str(folder / "r.toml")
    for words in (("proxy", "r"), ("doge", "r"), ("doremi", "r", "--reference-run", "r")):
        looked = ask(server, folder, *words, "--out", out, "--dry-run")
        assert looked.exit_code == 0, looked.output
        assert "would train" in looked.output
        assert isinstance(ask(server, folder, *words, "--out", out, token="wrong").exception, UnauthenticatedError)
    trained = ask(server, folder, "proxy", "r", "--out", out, "--steps", "2", "--windows", "1")
    assert trained.exit_code == 0, trained.output
    # A run is made, which only an admin may, and a process of its own trains on it: both must bring the token.
    sweep = ("ablate", run, "--held-out", "held", "--candidate", f"{out}/mixture.json", "--out", str(folder / "sweep"))
    measured = ask(server, folder, *sweep, "--steps", "2", "--windows", "10", token="admin")
    assert measured.exit_code == 0, measured.output
    assert "best measured: mixture" in measured.output
    assert isinstance(ask(server, folder, *sweep, token="wrong").exception, UnauthenticatedError)


def test_it_speaks_tls_and_brings_its_token(tmp_path: Path, corpus: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not on this machine")
    certificate(tmp_path)
    (tmp_path / "tokens.toml").write_text(TOKENS)
    (tmp_path / "tokens.toml").chmod(0o600)
    (tmp_path / "token").write_text("a-token-of-the-mixer\n")
    extra = '[tls]\ncertificate = "server.pem"\nkey = "server.key"\n[auth]\ntokens = "tokens.toml"\n'
    run = tmp_path / "r.toml"
    run.write_text(run_toml("r", corpus, dict.fromkeys(DOCUMENTS, 1.0)))
    (tmp_path / "admin").write_text("a-token-of-the-sweeper\n")
    (tmp_path / "wrong").write_text("a-token-of-a-stranger\n")
    held = tmp_path / "held.toml"
    held.write_text(run_toml("held", corpus, dict.fromkeys(DOCUMENTS, 1.0), kind="eval", steps=2))
    with serving(tmp_path, [run, held], extra=extra) as server:
        check_commands(tmp_path, server.address)
        good = look(tmp_path, server.address, 'tls_ca = "server.pem"', 'token_file = "token"')
        assert good.exit_code == 0, good.output
        assert "would watch run `r`" in good.output
        (tmp_path / "token").write_text("a-token-of-a-stranger\n")
        strange = look(tmp_path, server.address, 'tls_ca = "server.pem"', 'token_file = "token"')
        assert isinstance(strange.exception, UnauthenticatedError)
        assert "a-token-of" not in str(strange.exception)
        assert isinstance(look(tmp_path, server.address).exception, UnavailableError)  # no TLS
        absent = look(tmp_path, server.address, 'tls_ca = "missing.pem"', 'token_file = "token"')
        assert isinstance(absent.exception, UsageError)
        assert "missing.pem" in str(absent.exception)
