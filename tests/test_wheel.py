"""The wheel is one abi3 file whose base install is the thin client and the command.

It is built here and installed into a new environment, from which it is used in another folder: what an editable
install would hide (a package that is not listed, a file that does not ship, an import of an extra) shows.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("client", "mixer", "native", "proto", "server", "tokenizer")
ABSENT = ("torch", "pyarrow", "sqlalchemy", "zstandard", "django", "babel", "scipy")


def run(*argv: str | Path, cwd: Path, code: int = 0) -> str:
    """Output of a process that must end with `code`; nothing of this environment or checkout leaks into it."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for stale in [*ROOT.glob("build/lib*"), *ROOT.glob("build/bdist*")]:
        shutil.rmtree(stale)
    out = tmp_path_factory.mktemp("wheel")
    run(_uv(), "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a new environment that holds the wheel's base install and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    run(_uv(), "venv", "--python", sys.executable, folder / "env", cwd=folder)
    python = folder / "env/bin/python"
    run(_uv(), "pip", "install", "--python", python, "--constraint", ROOT / "constraints.txt", wheel, cwd=folder)
    return python.parent


def _uv() -> Path:
    return Path(sys.executable).parent / "uv"


def test_wheel_is_abi3(wheel: Path) -> None:
    assert re.fullmatch(r"headrace-[0-9.]+-cp311-abi3-\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith(".so")] == ["headrace/native/_native.abi3.so"]


def test_wheel_holds_every_source_and_nothing_else(wheel: Path) -> None:
    kinds = {".py", ".pyi", ".typed"}
    paths = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "target" not in path.parts}
    static = {path for path in paths if "static" in path.parts and path.is_file()}
    sources = {f"headrace/{path.relative_to(ROOT)}" for path in paths if path.suffix in kinds or path in static}
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name and not name.endswith(".so")}
    assert shipped == sources | {f"headrace/{folder}/py.typed" for folder in FOLDERS}


def test_base_install_is_thin(installed: Path, tmp_path: Path) -> None:
    program = f"from importlib.util import find_spec; print([name for name in {ABSENT} if find_spec(name)])"
    assert run(installed / "python", "-c", program, cwd=tmp_path).strip() == "[]"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server of this environment with one small run, `tiny`."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "a.txt").write_text("".join(f"line {n} of the text\n" for n in range(200)))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("ADDRESS", address))
    command = [sys.executable, "-m", "headrace.client.cli"]
    train = ["--lang", "a=a.txt", "--variant", "classical", "--vocab-size", "280", "--out", "tokenizer.json"]
    run(*command, "tokenizer", "train", *train, cwd=folder)
    run(*command, "corpus", "build", "CORPUS.toml", cwd=folder)
    process = subprocess.Popen([*command, "serve", "SERVER.toml"], cwd=folder, stderr=subprocess.DEVNULL)
    yield address
    process.terminate()
    assert process.wait(30) == 0


FILES = {
    "CORPUS.toml": '[[domain]]\nname = "a"\nfiles = ["a.txt"]\n[corpus]\n',
    "RUN.toml": """
[run]
name = "tiny"
corpus = "corpus/manifest.json"
seed = 1
[[phase]]
name = "all"
steps = 10
seq_len = 16
batch = 4
weights = { a = 1 }
""",
    "SERVER.toml": '[server]\nlisten = "ADDRESS"\nstore = "sqlite:///runs.db"\nruns = ["RUN.toml"]\n',
}

READ = """
import sys
import headrace.client
from headrace.client import Loader
assert "site-packages" in headrace.client.__file__, headrace.client.__file__
with Loader(sys.argv[1], "tiny") as loader:
    batches = list(loader)
assert [batch.step for batch in batches] == list(range(10))
assert all(batch.input_ids.shape == (4, 16) for batch in batches)
assert "torch" not in sys.modules and loader.state_dict()["next_step"] == 10
print("read", sum(batch.tokens for batch in batches), "tokens")
"""


def test_thin_client_reads_a_run_elsewhere(installed: Path, server: str, tmp_path: Path) -> None:
    told = run(installed / "python", "-c", READ, server, cwd=tmp_path)
    assert "read 636 tokens" in told
    listed = json.loads(run(installed / "headrace", "run", "list", "--server", server, "--json", cwd=tmp_path))
    assert [(found["name"], found["confirmed"]) for found in listed] == [("tiny", 10)]


def test_command_works_elsewhere(installed: Path, tmp_path: Path) -> None:
    assert "0.1.0" in run(installed / "headrace", "--version", cwd=tmp_path)
    assert "demo" in run(installed / "headrace", "--help", cwd=tmp_path)


def test_missing_extra_is_named_without_a_traceback(installed: Path, tmp_path: Path) -> None:
    told = run(installed / "headrace", "demo", cwd=tmp_path, code=2)
    assert "pip install 'headrace[demo]'" in told
    assert "Traceback" not in told
    assert not list(tmp_path.iterdir())
