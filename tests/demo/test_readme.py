"""README is true: its tree exists, and its files, commands and lines of code run as they stand, at smaller sizes."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALLER = {"128000": "300", "40_000": "12", "4096": "32", "512": "8"}
HEADRACE = f"{shlex.quote(sys.executable)} -m headrace.client.cli"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def smaller(text: str, ports: dict[str, str]) -> str:
    for old, new in {**SMALLER, **ports}.items():
        text = text.replace(old, new)
    return text


def write_text(folder: Path) -> None:
    """Two languages: training documents, and aligned lines to develop and to test with."""
    lines = {"eng": "line {} of an English text", "deu": "Zeile {} eines deutschen Textes"}
    for name in ("raw", "dev", "test"):
        (folder / name).mkdir()
    for name, line in lines.items():
        documents = "".join(json.dumps({"text": line.format(number)}) + "\n" for number in range(400)).encode()
        plain = name == "eng"
        content = documents if plain else zstandard.ZstdCompressor().compress(documents)
        (folder / f"raw/{name}.jsonl{'' if plain else '.zst'}").write_bytes(content)
        for number, part in enumerate(("dev", "test")):
            lines_of_part = range(20 * number, 20 * number + 20)
            (folder / f"{part}/{name}.txt").write_text("".join(line.format(n) + "\n" for n in lines_of_part))


def wait_until_listening(address: str, process: subprocess.Popen[bytes]) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"no server at {address}")


def shell(script: str, folder: Path, env: dict[str, str]) -> str:
    script = re.sub(r"^headrace ", f"{HEADRACE} ", script, flags=re.MULTILINE)
    done = subprocess.run(["bash", "-ec", script], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_files_commands_and_code_run(tmp_path: Path) -> None:
    ports = {"7750": str(free_port()), "7751": str(free_port())}
    address = f"127.0.0.1:{ports['7750']}"
    write_text(tmp_path)
    for text in blocks("toml"):
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(smaller(text, ports))
    script = smaller(blocks("sh")[1], ports).replace("--vocab-size 300", "--vocab-size 280")
    before, serve, after = re.split(r"^(headrace serve .*)$", script, flags=re.MULTILINE)
    shell(before, tmp_path, {**os.environ})
    server = subprocess.Popen(
        shlex.split(HEADRACE) + shlex.split(serve, comments=True)[1:], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    try:
        wait_until_listening(address, server)
        printed = shell(after, tmp_path, {**os.environ})
        assert "deu" in printed
        assert len(re.findall(r"[0-9a-f]{64}", printed)) >= 10
        _run_the_four_lines(smaller(blocks("python")[0], ports))
    finally:
        server.terminate()
        assert server.wait(30) == 0


def _run_the_four_lines(code: str) -> None:
    steps: list[int] = []
    first, load, rest = re.split(r"^(loader\.load_state_dict.*)$", code, flags=re.MULTILINE)
    names: dict[str, object] = {
        "rank": 0,
        "world": 1,
        "checkpoint": {},
        "train_on": lambda batch: steps.append(batch.step),
    }
    exec(first + rest, names)
    assert steps == list(range(12))
    checkpoint = names["checkpoint"]
    assert isinstance(checkpoint, dict)
    assert len(json.dumps(checkpoint["data"])) < 300
    assert load.startswith("loader.load_state_dict")
    names["loader"].close()  # type: ignore[attr-defined]


def test_tree_exists() -> None:
    tree = next(block for block in blocks("text") if block.startswith("proto/"))
    parents: list[str] = []
    for line in tree.splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        if not name.endswith("/"):
            continue
        parents = [*parents[:depth], name]
        assert (ROOT / "".join(parents)).is_dir(), line
    for path in re.findall(r"`((?:client|server|mixer|tokenizer|tests|native|proto)/[\w/]+\.py)`", README):
        assert (ROOT / path).is_file(), path


def test_targets_exist_and_it_is_short() -> None:
    assert len(README.splitlines()) < 200
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)|`make (\w+)`", README, re.MULTILINE)
    assert {"demo", "test", "setup"} <= {name for pair in targets for name in pair}
    for name in {name for pair in targets for name in pair if name}:
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
