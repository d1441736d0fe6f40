"""Before a server starts: what its file names is looked at, and what is wrong leaves nothing behind."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from corpora import write_small_corpus
from headrace.proto.errors import StateMismatchError
from rig import Raw, Trainer, headrace, health_of, serving, write_run


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield int(other.getsockname()[1])


def write_server(folder: Path, runs: list[Path], *, port: int = 0, more: str = "") -> Path:
    path = folder / "SERVER.toml"
    names = ", ".join(f'"{run}"' for run in runs)
    path.write_text(
        f'[server]\nlisten = "127.0.0.1:{port}"\nstore = "sqlite:///control.db"\nruns = [{names}]\n{more}\n'
    )
    return path


def test_a_taken_port_leaves_no_store_behind(tmp_path: Path, corpus: Path, taken: int) -> None:
    done = headrace("serve", str(write_server(tmp_path, [write_run(tmp_path, corpus)], port=taken)))
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{taken}: Address already in use" in done.stderr
    assert not (tmp_path / "control.db").exists()


def test_check_opens_what_the_file_names(tmp_path: Path, corpus: Path) -> None:
    run = write_run(tmp_path, corpus)
    done = headrace("serve", "--check", str(write_server(tmp_path, [run])))
    assert done.returncode == 0, done.stderr
    assert "will be made" in done.stdout
    assert "run `r`, digest" in done.stdout
    assert not (tmp_path / "control.db").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('[tls]\ncertificate = "no.pem"\nkey = "no.key"', "no.pem: No such file"),
        ('[auth]\ntokens = "no.toml"', "no.toml: No such file or directory; check [auth]"),
        ("bad_blocks = 'ignore'", "neither `fail`"),
        ("changes_per_second = -1", "at least 0"),
        ("metrix = '127.0.0.1:1'", "did you mean `metrics`?"),
    ],
)
def test_check_names_what_is_wrong(tmp_path: Path, corpus: Path, more: str, says: str) -> None:
    done = headrace("serve", "--check", str(write_server(tmp_path, [write_run(tmp_path, corpus)], more=more)))
    assert done.returncode == 2
    assert says in done.stderr


def test_check_tells_what_no_phase_reads(tmp_path: Path, corpus: Path) -> None:
    run = write_run(tmp_path, corpus)
    run.write_text(run.read_text().replace("c = 0.2", "c = 0"))
    done = headrace("serve", "--check", str(write_server(tmp_path, [run])))
    assert re.search(r"it never reads `c` \([\d,]+ tokens\), which no phase gives weight", done.stdout)


def test_check_looks_at_a_corpus_that_is_not_built(tmp_path: Path) -> None:
    """The sources and the tokenizer that it would be built from are there, or the check says what is not."""
    spec = write_small_corpus(tmp_path)
    config = str(write_server(tmp_path, [write_run(tmp_path, tmp_path / "corpus/manifest.json")]))
    done = headrace("serve", "--check", config)
    assert "its corpus will be built first, of 3 files, from" in done.stdout
    spec.tokenizer_path.unlink()
    done = headrace("serve", "--check", config)
    assert done.returncode == 2
    assert "no tokenizer at" in done.stderr
    assert not (tmp_path / "corpus").exists()


def test_check_opens_the_runs(tmp_path: Path, corpus: Path, taken: int) -> None:
    missing = headrace("serve", "--check", str(write_server(tmp_path, [tmp_path / "NO.toml"])))
    assert "NO.toml" in missing.stderr
    astray = write_run(tmp_path, Path("configs/../nowhere/manifest.json"))
    lost = headrace("serve", "--check", str(write_server(tmp_path, [astray])))
    assert lost.returncode != 0
    assert f"{tmp_path}/nowhere/manifest.json" in lost.stderr
    assert ".." not in lost.stderr
    busy = headrace("serve", "--check", str(write_server(tmp_path, [write_run(tmp_path, corpus)], port=taken)))
    assert "cannot listen" in busy.stderr


def test_check_beside_its_own_running_server_is_good(tmp_path: Path, corpus: Path) -> None:
    run = write_run(tmp_path, corpus)
    with serving(tmp_path, [run]) as server:
        config = str(tmp_path / "SERVER.toml")
        done = headrace("serve", "--check", config)
        assert done.returncode == 0, done.stderr
        whose = f"by the server that has this store open (pid {server.process.pid} on "  # type: ignore[union-attr]
        assert f"listen: {server.address} is in use, {whose}" in done.stdout
        assert "holds 1 run: r" in done.stdout
        assert done.stdout.endswith(f"{config}: good\n")
        other = tmp_path / "OTHER.toml"
        other.write_text(Path(config).read_text().replace("control.db", "other.db"))
        busy = headrace("serve", "--check", str(other))
        assert busy.returncode == 2
        assert f"listen: cannot listen on {server.address}: Address already in use" in busy.stderr
        assert "run `r`, digest" in busy.stdout  # and the rest is looked at all the same


def test_check_refuses_what_serve_would(tmp_path: Path, corpus: Path) -> None:
    run = write_run(tmp_path, corpus)
    with serving(tmp_path, [run]):
        pass
    write_run(tmp_path, corpus, batch=16)
    config = write_server(tmp_path, [run])
    other = headrace("serve", "--check", str(config))
    assert other.returncode != 0
    assert "in the store with spec digest" in other.stderr
    text = config.read_text()
    config.write_text(text.replace("control.db", "nodir/control.db"))
    lost = headrace("serve", "--check", str(config))
    assert lost.returncode != 0
    assert "there is no folder" in lost.stderr
    config.write_text(
        text.replace("127.0.0.1:0", "127.0.0.1:7750").replace("store", 'metrics = "127.0.0.1:7750"\nstore', 1)
    )
    twice = headrace("serve", "--check", str(config))
    assert twice.returncode == 2
    assert "give it another port" in twice.stderr


def test_a_required_key_with_a_mistake_in_it_is_named(tmp_path: Path, corpus: Path) -> None:
    run = write_run(tmp_path, corpus)
    run.write_text(run.read_text().replace("corpus =", "corpsu ="))
    done = headrace("serve", "--check", str(write_server(tmp_path, [run])))
    assert "`run.corpus` is missing; did you mean it by `corpsu`?" in done.stderr


def test_each_run_has_a_health_of_its_own_and_a_state_beyond_the_end_is_named(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus, steps=20)]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(2)
        assert health_of(server, "run/r") == "SERVING"
        assert health_of(server, "") == "SERVING"
        with pytest.raises(grpc.RpcError):
            health_of(server, "run/none")
        state = {**trainer.state(), "next_step": 21}
        with pytest.raises(StateMismatchError, match="is at step 21, but run `r` ends at step 20"):
            raw("OpenRun", run="r", mode="OPEN_MODE_OBSERVE", state=state)
