"""SERVER.toml: strict, with the line; and what a server says when it cannot start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headrace.proto.errors import ConfigError
from headrace.server.service.config import _TABLES, ServerConfig, is_loopback
from headrace.server.watch.drift_settings import DriftSettings
from rig import ServerProcess, headrace, serving, write_run

GOOD = '[server]\nlisten = "127.0.0.1:7750"\nstore = "sqlite:///headrace.db"\n'


def load(text: str) -> ServerConfig:
    return ServerConfig.from_toml(text, place="SERVER.toml", folder=Path("/etc/headrace"))


def test_paths_start_from_the_folder_of_the_file() -> None:
    config = load(GOOD + 'runs = ["RUN.toml", "/abs/RUN.toml"]\n[tls]\ncertificate = "c.pem"\nkey = "k.pem"\n')
    assert config.store == "sqlite:////etc/headrace/headrace.db"
    assert config.runs == (Path("/etc/headrace/RUN.toml"), Path("/abs/RUN.toml"))
    assert config.tls is not None
    assert config.tls.certificate == Path("/etc/headrace/c.pem")
    assert load(GOOD.replace("sqlite:///headrace.db", "sqlite:////var/x.db")).store == "sqlite:////var/x.db"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"no \[server\] table"),
        ("[server]\n", "needs listen"),
        ('[server]\nlisten = "127.0.0.1:1"\n', "needs store"),
        (GOOD + 'listne = "x"\n', "SERVER.toml:4: unknown key `listne`"),
        (GOOD + "\n[sevrer]\n", "SERVER.toml:5: unknown key `sevrer`"),
        (GOOD + "grace_seconds = 1.5\n", "SERVER.toml:4: grace_seconds must be a whole number"),
        (GOOD + "grace_seconds = -1\n", "SERVER.toml:4: grace_seconds = -1 must be at least 0"),
        (GOOD + "concurrent_calls = 0\n", "SERVER.toml:4: concurrent_calls = 0 must be at least 1"),
        (GOOD + "changes_per_second = -1\n", "SERVER.toml:4: .* must be at least 0; 0 is no limit"),
        (GOOD + "share_bytes = -1\n", "SERVER.toml:4: share_bytes = -1 must be at least 0; 0 shares no memory"),
        (GOOD + 'bad_blocks = "skip"\n', "SERVER.toml:4: bad_blocks = `skip` is neither"),
        (GOOD + 'metrics = "127.0.0.1:7750"\n', "SERVER.toml:4: .* is also `listen`"),
        (GOOD + "[auth.identities]\na = 'read'\n", "SERVER.toml:4: identities are read from client certificates"),
        (GOOD + "[drift]\nrows = 0\n", r"SERVER.toml:4: \[drift\]: steps, one_in, least and rows are at least 1"),
        (GOOD + "runs = [1]\n", "SERVER.toml:4: runs must hold strings"),
        (GOOD + "message_bytes = 1\n", "SERVER.toml:4: message_bytes = 1 must be at least 65536 and at most 33554432"),
        (GOOD.replace("127.0.0.1:7750", "7750"), "SERVER.toml:2: .* no HOST:PORT"),
        (GOOD.replace("127.0.0.1:7750", "127.0.0.1:99999"), "a port is at most 65535"),
        (GOOD.replace("127.0.0.1", "0.0.0.0"), "SERVER.toml:2: .*allow_insecure = true"),
        (GOOD.replace("127.0.0.1", "node-7"), "allow_insecure = true"),
        (GOOD + '[tls]\ncertificate = "c"\n', r"\[tls\] needs key"),
        ("listen = [", "no TOML"),
    ],
)
def test_mistakes_name_file_and_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load(text)
    assert str(caught.value).startswith("SERVER.toml")


def test_other_addresses_with_the_flag() -> None:
    assert load(GOOD.replace("127.0.0.1", "0.0.0.0") + "allow_insecure = true\n").allow_insecure


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1:1", True), ("localhost:1", True), ("[::1]:1", True), ("0.0.0.0:1", False), ("10.0.0.1:1", False)],
)
def test_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_check_only(tmp_path: Path) -> None:
    (tmp_path / "S.toml").write_text(GOOD)
    (tmp_path / "S.toml").write_text(GOOD.replace("127.0.0.1:7750", "127.0.0.1:0"))
    assert headrace("serve", "--check", "S.toml", cwd=tmp_path).stdout.endswith("\nS.toml: good\n")
    missing = headrace("serve", "T.toml", cwd=tmp_path)
    assert (missing.returncode, missing.stderr) == (
        2,
        "error: cannot read T.toml: No such file or directory; check the path\n",
    )


def test_second_server_on_a_store_or_port_is_refused(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server:
        (tmp_path / "same-store.toml").write_text(f'[server]\nlisten = "127.0.0.1:0"\nstore = "{server.store}"\n')
        store = headrace("serve", "same-store.toml", cwd=tmp_path)
        assert store.returncode == 1
        assert "in use by another server" in store.stderr
        port = f'[server]\nlisten = "{server.address}"\nstore = "sqlite:///other.db"\n'
        (tmp_path / "same-port.toml").write_text(port)
        listen = headrace("serve", "same-port.toml", cwd=tmp_path)
        assert listen.returncode == 2
        assert f"cannot listen on {server.address}" in listen.stderr
        assert "Traceback" not in store.stderr + listen.stderr


def test_a_run_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    spec = write_run(tmp_path, tmp_path / "nowhere.json")
    with pytest.raises(AssertionError, match=r"nowhere\.json"):
        ServerProcess(tmp_path, [spec])


def test_another_corpus_under_the_run_is_refused_with_both_digests(tmp_path: Path, corpus: Path) -> None:
    from corpora import build_small_corpus

    link = tmp_path / "linked"
    link.symlink_to(corpus.parent)
    spec = write_run(tmp_path, link / "manifest.json")
    with serving(tmp_path, [spec]) as server:
        server.stop()
        (tmp_path / "second").mkdir()
        other = build_small_corpus(tmp_path / "second", seed=2)
        link.unlink()
        link.symlink_to(other.parent)
        with pytest.raises(AssertionError, match="its corpus is not the one that it was made with"):
            server.start()
        done = headrace("run", "digest", "r", "--steps", "0", "--store", server.store)
        assert done.returncode == 1
        assert "put the run's corpus back" in done.stderr


def test_the_page_has_every_key_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "deploy/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*?) \| (.*?) \|", page.partition("## SERVER.toml")[2], re.MULTILINE)
    listed = {key: default for keys, default in rows for key in re.findall(r"`(\w+)`", keys)}
    missing = {key for table in _TABLES.values() for key in table} - listed.keys()
    assert not missing
    config = ServerConfig(place="", listen="127.0.0.1:1", store="sqlite:///c.db")
    for key in ("concurrent_calls", "changes_per_second", "grace_seconds", "allow_insecure", "reflection"):
        assert listed[key] == str(getattr(config, key)).lower()
    assert listed["bad_blocks"].startswith(f'`"{config.bad_blocks}"')
    sizes = {"MiB": 1 << 20, "GiB": 1 << 30}
    for key in ("message_bytes", "share_bytes"):
        number, unit = listed[key].split()
        assert int(number) * sizes[unit] == getattr(config, key)
    drift = DriftSettings()
    assert listed["enabled"] == f"true, {drift.steps}, {drift.one_in}, {drift.least}, {drift.rows}, {drift.duty}"
