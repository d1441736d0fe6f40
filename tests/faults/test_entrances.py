"""Row 40: a run whose corpus was exchanged, or whose name stands for another spec, is refused at every entrance.

Each refusal names the digest that the run was made with and the one found instead, and changes nothing.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from corpora import build_small_corpus
from headrace.proto.errors import HeadraceError
from rig import Raw, Trainer, headrace, serving, write_run
from test_mismatch import with_another_tokenizer

GOOD = {"a": 0.2, "b": 0.2, "c": 0.6}
MASK = {"by": "source", "values": ["a.jsonl:1"]}
JOB = {"id": "other", "world": 1, "rank": "0"}
COMMANDS = (
    "run create HOME/r.toml",
    "run digest r --steps 0:3",
    "run forecast r",
    "run explain r --step 3",
    "run events r",
    "run export r",
    "run verify r",
    "run report r --html -",
    "run diff r r",
    "run branch r child --at 5",
    "run mask r --by source a.jsonl:1",
    "weights show r",
    "weights set r a=1 b=1 c=1",
    "weights cancel r 1",
    "weights history r",
    "serve --check HOME/SERVER.toml",
)
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("CreateRun", {"spec_toml": "SPEC", "base_dir": "HOME"}),
    ("CreateRun", {"spec_toml": "OTHER SPEC", "base_dir": "HOME"}),
    ("OpenRun", {"run": "r", "mode": "OPEN_MODE_TRAIN", "job": JOB}),
    ("OpenRun", {"run": "r", "mode": "OPEN_MODE_OBSERVE"}),
    ("GetBatch", {"run_id": "ID", "step": 3, "first_slot": 0, "rows": 8}),
    ("GetRun", {"run": "r"}),
    ("BranchRun", {"parent": "r", "name": "child", "at": 5}),
    ("ExportRun", {"run": "r"}),
    ("SetWeights", {"run": "r", "weights": GOOD}),
    ("Mask", {"run": "r", "mask": MASK}),
    ("CancelEvent", {"run": "r", "sequence": 1}),
    ("GrowDomain", {"run": "r", "domain": "a", "manifest": "corpus/manifest.json"}),
    ("ListEvents", {"run": "r"}),
    ("Explain", {"run": "r", "step": 3}),
    ("Forecast", {"run": "r"}),
    ("WatchRun", {"run": "r"}),
    ("WatchLosses", {"run": "r"}),
)


@dataclass(frozen=True)
class Run:
    """A run `r` of 20 steps and one change, in a folder of its own; `digest` is the beginning of its spec's."""

    home: Path
    export: Path
    id: str
    digest: str

    @property
    def store(self) -> str:
        return f"sqlite:///{self.home}/control.db"

    def log(self) -> bytes:
        """What no refused change may alter: runs and events of the store, as SQLite holds them."""
        import sqlite3

        with sqlite3.connect(self.home / "control.db") as connection:
            return repr(
                [connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("runs", "events")]
            ).encode()

    def refused(self, said: str) -> None:
        """Both digests are named, and no traceback is shown."""
        digests = set(re.findall(r"\b[0-9a-f]{16}\b", said))
        assert self.digest in digests, said
        assert len(digests) >= 2, said
        assert "Traceback" not in said


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("home")
    build_small_corpus(home)
    with serving(home, [write_run(home, Path("corpus/manifest.json"))]) as server, Raw(server.address) as raw:
        Trainer(raw).open().take(20).settle()
        raw("SetWeights", run="r", weights=GOOD)
        export = home / "r.json"
        export.write_text(raw("ExportRun", run="r").document)
        run = raw("GetRun", run="r").run
        server.stop()
    return Run(home=home, export=export, id=run.run_id, digest=run.spec_digest.hex()[:16])


@pytest.fixture(scope="module", params=["corpus", "tokenizer"])
def exchanged(request: pytest.FixtureRequest, made: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The run with another corpus in the place of its own: other texts, or the same under another tokenizer."""
    other = tmp_path_factory.mktemp(request.param)
    if request.param == "corpus":
        build_small_corpus(other, seed=2)
    else:
        with_another_tokenizer(other)
    shutil.move(made.home / "corpus", made.home / "kept")
    shutil.copytree(other / "corpus", made.home / "corpus")
    yield made
    shutil.rmtree(made.home / "corpus")
    shutil.move(made.home / "kept", made.home / "corpus")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_a_store(exchanged: Run, command: str) -> None:
    before = exchanged.log()
    words = command.replace("HOME", str(exchanged.home)).split()
    done = headrace(*words, *(() if "serve" in words else ("--store", exchanged.store)))
    assert done.returncode == 1
    exchanged.refused(done.stdout + done.stderr)
    assert exchanged.log() == before


@pytest.mark.parametrize("exchanged", ["corpus"], indirect=True)
def test_calls_to_a_server(exchanged: Run, tmp_path: Path) -> None:
    """One that was started without the run in its file, so that nobody has looked at it before."""
    before = exchanged.log()
    spec = (exchanged.home / "r.toml").read_text()
    given = {"SPEC": spec, "OTHER SPEC": spec.replace("seed = 7", "seed = 8"), "ID": exchanged.id}
    given["HOME"] = str(exchanged.home)
    with serving(tmp_path, [], store=exchanged.store) as server, Raw(server.address) as raw:
        for call, fields in CALLS:
            with pytest.raises(HeadraceError) as caught:
                raw(call, **{name: given.get(str(value), value) for name, value in fields.items()})
            exchanged.refused(str(caught.value))
    assert exchanged.log() == before


def test_imports(exchanged: Run, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/new.db"
    for words in ((), ("--base-dir", str(exchanged.home)), ("--dry-run",)):
        done = headrace("run", "import", str(exchanged.export), *words, "--store", store)
        assert done.returncode == 1
        exchanged.refused(done.stderr)
    assert headrace("run", "list", "--store", store).stdout.startswith("no run yet")


def test_the_list_shows_the_other_runs_and_why_this_one_is_not_opened(
    exchanged: Run, corpus: Path, tmp_path: Path
) -> None:
    shutil.copy(exchanged.home / "control.db", tmp_path / "control.db")
    store = f"sqlite:///{tmp_path}/control.db"
    assert headrace("run", "create", str(write_run(tmp_path, corpus, name="sound")), "--store", store).returncode == 0
    done = headrace("run", "list", "--store", store)
    assert done.returncode == 0
    assert "sound: confirmed 0" in done.stdout
    refusal = next(line for line in done.stdout.splitlines() if line.startswith("r: CANNOT BE OPENED here: "))
    exchanged.refused(refusal)
    listed = {run["name"]: run for run in json.loads(headrace("run", "list", "--json", "--store", store).stdout)}
    assert listed["sound"]["refused"] == ""
    exchanged.refused(listed["r"]["refused"])


# ---- another spec under the run's name


def test_another_spec_under_the_same_name(made: Run, tmp_path: Path) -> None:
    before = made.log()
    spec = write_run(tmp_path, made.home / "corpus" / "manifest.json", seed=8)
    config = tmp_path / "SERVER.toml"
    config.write_text(f'[server]\nlisten = "127.0.0.1:0"\nstore = "{made.store}"\nruns = ["{spec}"]\n')
    edited = json.loads(made.export.read_text())
    edited["spec"]["seed"] = 8
    (tmp_path / "edited.json").write_text(json.dumps(edited))
    full = f"sqlite:///{tmp_path}/full.db"
    assert headrace("run", "create", str(spec), "--store", full).returncode == 0
    for words in (
        ("run", "create", str(spec), "--store", made.store),
        ("run", "branch", "r", "r", "--at", "5", "--store", made.store),
        ("serve", "--check", str(config)),
        ("run", "import", str(tmp_path / "edited.json"), "--store", f"sqlite:///{tmp_path}/new.db"),
        ("run", "import", str(made.export), "--store", full),
    ):
        done = headrace(*words)
        assert done.returncode == 1, words
        made.refused(done.stderr)
    assert made.log() == before
