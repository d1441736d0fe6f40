"""One run that cannot be opened keeps no other from being served: it is refused in words, and opened when it can be."""

from __future__ import annotations

import shutil
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from corpora import build_small_corpus
from headrace.client import Loader, Settings
from headrace.proto.errors import ElsewhereError
from headrace.server.corpus.manifest import Corpus
from postgres import PostgresServer
from rig import Raw, ServerProcess, Trainer, headrace, health_of, serving, write_run


@pytest.fixture
def folders(tmp_path: Path, corpus: Path) -> tuple[Path, Path]:
    """Two folders with a corpus of their own each."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shutil.copytree(corpus.parent, tmp_path / name / "corpus")
    return tmp_path / "one", tmp_path / "two"


def two_runs(folders: tuple[Path, Path]) -> list[Path]:
    return [
        write_run(folder, folder / "corpus" / "manifest.json", name=name)
        for folder, name in zip(folders, ("bad", "good"), strict=True)
    ]


def shard_of(folder: Path, domain: str) -> Path:
    manifest = folder / "corpus" / "manifest.json"
    record = next(each for each in Corpus.open(manifest).manifest.domains if each.name == domain).generations[0][0]
    return manifest.parent / record.folder / record.shard.file


def cut(path: Path) -> Callable[[], object]:
    """Takes the last byte of a file away; what is returned puts it back."""
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    return lambda: path.write_bytes(whole)


def page(server: ServerProcess, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def refused(server: ServerProcess, run: str) -> str:
    """The value of `headrace_run_refused` for a run."""
    lines = page(server, "/metrics").splitlines()
    return next(line.split()[-1] for line in lines if line.startswith(f'headrace_run_refused{{run="{run}"}}'))


def until(ready: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_damaged_shard_refuses_its_run_and_serves_the_other(folders: tuple[Path, Path]) -> None:
    runs = two_runs(folders)
    shard = shard_of(folders[0], "b")
    mend = cut(shard)
    with serving(folders[0].parent, runs) as server, Raw(server.address) as raw:
        Trainer(raw, run="good").open().take(5)
        for call in ("OpenRun", "GetRun"):
            fields = {"mode": "OPEN_MODE_OBSERVE"} if call == "OpenRun" else {}
            with pytest.raises(ElsewhereError, match=f"(?s)run `bad` is not served by this server: .*{shard.name}"):
                raw(call, run="bad", **fields)
        until(lambda: health_of(server, "run/bad") == "NOT_SERVING")
        assert [health_of(server, name) for name in ("", "run/good")] == ["SERVING", "SERVING"]
        assert [refused(server, name) for name in ("bad", "good")] == ["1.0", "0.0"]
        assert page(server, "/healthz") == "serving, but not bad\n"
        listed = headrace("run", "list", "--server", server.address)
        assert (listed.returncode, shard.name in listed.stdout) == (0, True)
        address = ["--endpoint", f"http://127.0.0.1:{server.metrics_port}"]
        seen = headrace("top", *address).stdout
        assert seen.startswith("good  step ")
        assert "Run bad is not served by this server: " in seen
        alone = headrace("top", "bad", *address)
        assert (alone.returncode, shard.name in alone.stderr) == (75, True)
        log = server.log.read_text()
        assert log.count("run bad is not served, the others are: ") == 1
        assert "Traceback" not in log
        mend()
        until(lambda: health_of(server, "run/bad") == "SERVING")
        assert refused(server, "bad") == "0.0"
        assert page(server, "/healthz") == "serving\n"
        Trainer(raw, run="bad").open().take(5)
        assert "run bad: is served now, after " in server.log.read_text()


def test_the_check_names_the_run_that_serve_would_leave_out(folders: tuple[Path, Path]) -> None:
    runs = two_runs(folders)
    shard = shard_of(folders[0], "b")
    cut(shard)
    config = folders[0].parent / "SERVER.toml"
    names = ", ".join(f'"{run}"' for run in reversed(runs))
    config.write_text(f'[server]\nlisten = "127.0.0.1:0"\nstore = "sqlite:///c.db"\nruns = [{names}]\n')
    done = headrace("serve", "--check", str(config))
    assert done.returncode == 1
    assert "run `good`, digest" in done.stdout
    assert shard.name in done.stderr


def test_a_corpus_that_is_another_one_is_named_and_the_right_one_taken_when_it_is_back(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    runs = two_runs(folders)
    with serving(tmp_path, runs) as server:
        server.stop()
        shutil.move(folders[0] / "corpus", folders[0] / "kept")
        (tmp_path / "other").mkdir()
        shutil.copytree(build_small_corpus(tmp_path / "other", seed=2).parent, folders[0] / "corpus")
        server.start()
        with Raw(server.address) as raw:
            Trainer(raw, run="good").open().take(5)
            with pytest.raises(ElsewhereError, match=r"its corpus is not the one .*[0-9a-f]{16}, now [0-9a-f]{16}"):
                raw("GetRun", run="bad")
            shutil.rmtree(folders[0] / "corpus")
            shutil.move(folders[0] / "kept", folders[0] / "corpus")
            until(lambda: health_of(server, "run/bad") == "SERVING")
            Trainer(raw, run="bad").open().take(5)


def test_a_client_goes_to_the_server_that_has_the_run(
    folders: tuple[Path, Path], tmp_path: Path, corpus: Path, postgres: PostgresServer
) -> None:
    """Of two servers on one store one has a damaged disk; a loader that begins there reads from the other."""
    store = postgres.new_database()
    homes = [tmp_path / "a", tmp_path / "b"]
    for home in homes:
        home.mkdir()
    shutil.copytree(corpus.parent, homes[0] / "corpus")
    shutil.copytree(corpus.parent, homes[1] / "corpus")
    other = write_run(tmp_path, corpus, name="other")
    mine = [write_run(home, home / "corpus" / "manifest.json") for home in homes]
    for path in mine:  # the spec names the corpus as each server has it
        path.write_text(path.read_text().replace(str(path.parent) + "/", ""))
    cut(shard_of(homes[0], "b"))
    with (
        serving(homes[1], [mine[1], other], store=store) as whole,
        serving(homes[0], [mine[0], other], store=store) as broken,
    ):
        settings = Settings(stall_timeout=8, open_timeout=20, backoff=0.01, backoff_max=0.2)
        with Loader([broken.address, whole.address], "r", settings=settings) as loader:
            assert [next(loader).step for _ in range(20)] == list(range(20))
