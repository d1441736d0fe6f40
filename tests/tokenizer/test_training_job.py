"""Training as a job: stopped runs go on to the same result, Ctrl-C leaves no half file, and inputs of every kind."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from headrace.proto.errors import HeadraceError, UsageError
from headrace.tokenizer.outcome import Progress
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.tokenizer import Tokenizer
from headrace.tokenizer.train import train


def words(seed: int, count: int, alphabet: str = "etaoinshrdlu") -> str:
    rng = random.Random(seed)
    pool = ["".join(rng.choices(alphabet, k=rng.randint(1, 9))) for _ in range(count // 4)]
    return " ".join(rng.choices(pool, k=count)) + ".\n"


TEXTS = {"x": [words(1, 3000)], "y": [words(2, 2000, "ηικατον")], "z": [words(3, 900, "मनखप")]}
DEV = {name: [words(seed, 40, letters) for _ in range(30)] for seed, (name, letters) in
       enumerate([("x", "etaoinshrdlu"), ("y", "ηικατον"), ("z", "मनखप")])}  # fmt: skip


def stopped_after(merges: int) -> Any:
    def progress(at: Progress) -> None:
        if at.stage == "merge" and at.done >= merges:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize(
    "settings",
    [
        {"variant": "base"},
        {"variant": "window", "window": 20},
        {"variant": "hybrid+window", "window": 20, "global_merges": 300},
        {"variant": "base", "evidence": "mix", "eta": 0.1},
        {"objective": "pnorm", "split_dev": True},
        {"variant": "classical"},
        {"variant": "window", "superword_merges": 500},
    ],
)
def test_a_stopped_run_goes_on_to_the_same_result(settings: dict[str, Any], tmp_path: Path) -> None:
    spec = TrainSpec(vocab_size=1800, allow_smaller=True, **settings)
    dev = None if settings.get("variant") == "classical" else DEV
    whole, report = train(spec, TEXTS, dev)
    path = tmp_path / "run.checkpoint"
    for stop in (1, 400, 900):
        with pytest.raises(KeyboardInterrupt):
            train(spec, TEXTS, dev, checkpoint_path=path, progress=stopped_after(stop))
        assert path.exists()
    seen: list[Progress] = []
    again, other = train(spec, TEXTS, dev, checkpoint_path=path, progress=seen.append)
    assert seen[0].stage == "checkpoint"
    assert seen[0].done >= 1
    assert again.digest == whole.digest
    assert other.to_json() == report.to_json()
    assert list(other.trace) == list(report.trace)


def test_checkpoints_of_other_runs_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    path, text = tmp_path / "run.checkpoint", tmp_path / "x.txt"
    text.write_text(TEXTS["x"][0])
    spec = TrainSpec(vocab_size=900, variant="classical")
    with pytest.raises(KeyboardInterrupt):
        train(spec, {"x": [text]}, checkpoint_path=path, progress=stopped_after(1))
    with pytest.raises(UsageError, match="setting `vocab_size` was 900, and is now 901"):
        train(TrainSpec(vocab_size=901, variant="classical"), {"x": [text]}, checkpoint_path=path)
    with pytest.raises(UsageError, match="languages were x"):
        train(spec, {"y": [text]}, checkpoint_path=path)
    text.write_text(TEXTS["x"][0] + "more")
    with pytest.raises(UsageError, match=r"files have changed \(x\.txt\)"):
        train(spec, {"x": [text]}, checkpoint_path=path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(HeadraceError, match="damaged"):
        train(spec, {"x": [text]}, checkpoint_path=path)


COMMAND = [sys.executable, "-c", "from headrace.client.cli.main import run; run()", "tokenizer", "train"]


def interrupted(arguments: list[str]) -> tuple[int, str, float]:
    """Exit status, words, and seconds from a Ctrl-C at the first merges to the end."""
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        while "merge" not in (line := running.stderr.readline()):
            assert line, running.wait()
        running.send_signal(signal.SIGINT)
        sent = time.monotonic()
        said = running.stderr.read()
        return running.wait(timeout=30), said, time.monotonic() - sent


def test_ctrl_c_ends_within_a_second_and_the_command_goes_on(tmp_path: Path) -> None:
    text, out = tmp_path / "x.txt", tmp_path / "t.json"
    rng = random.Random(4)
    text.write_text(" ".join("".join(rng.choices("etaoinshrdlu", k=rng.randint(4, 14))) for _ in range(150_000)))
    arguments = [*COMMAND, "--lang", f"x={text}", "--variant", "classical", "--vocab-size", "30000", "--out", str(out)]
    for _ in range(5):
        code, said, seconds = interrupted(arguments)
        if code != 0:  # on a busy machine it may be done before the signal comes
            break
        for path in (out, out.with_name("t.training.json")):
            path.unlink()
    assert code == 130
    assert seconds < 5, "about a second, and slack for a busy machine"
    assert "the same command goes on from there" in said
    assert "Traceback" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json.checkpoint", "x.txt"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert "goes on from" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "t.training.json", "x.txt"]
    whole, _ = train(TrainSpec(vocab_size=30_000, variant="classical"), {"x": [text]})
    assert Tokenizer.load(out).digest == whole.digest


def test_a_place_that_cannot_be_written_is_refused_before_training(tmp_path: Path) -> None:
    for out, message in ((tmp_path / "none" / "t.json", "does not exist"), (tmp_path, "is a folder")):
        done = subprocess.run([*COMMAND, "--lang", "x=/nowhere", "--variant", "classical", "--vocab-size", "300",
                               "--out", str(out)], capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 2
        assert message in done.stderr
        assert "/nowhere" not in done.stderr


def test_parquet_gives_what_its_documents_give(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    documents = [words(seed, 200) for seed in range(20)]
    parquet.write_table(pa.table({"body": documents, "n": list(range(20))}), tmp_path / "x.parquet", row_group_size=7)
    spec = TrainSpec(vocab_size=400, variant="classical")
    made, report = train(spec, {"x": [tmp_path / "x.parquet"]}, field="body")
    assert made.digest == train(spec, {"x": documents})[0].digest
    assert report.documents == {"all": 20}
    with pytest.raises(HeadraceError, match=r"no column `text`; it has: body, n"):
        train(spec, {"x": [tmp_path / "x.parquet"]})
    with pytest.raises(HeadraceError, match="row 1 has no text in the column `n`"):
        train(spec, {"x": [tmp_path / "x.parquet"]}, field="n")
    (tmp_path / "y.parquet").write_bytes(b"no parquet")
    with pytest.raises(UsageError, match=r"cannot read .*y\.parquet"):
        train(spec, {"x": [tmp_path / "y.parquet"]})


def test_temperature_takes_less_of_the_large(tmp_path: Path) -> None:
    lines = {"x": "".join(words(seed, 10) for seed in range(1600)), "y": "".join(words(9, 10) for _ in range(100))}
    for name, text in lines.items():
        (tmp_path / f"{name}.txt").write_text(text)
    texts = {name: [tmp_path / f"{name}.txt"] for name in lines}
    dev = {name: ["the", "cat"] for name in lines}

    def taken(temperature: float, seed: int = 0) -> tuple[float, str]:
        spec = TrainSpec(vocab_size=300, temperature=temperature, seed=seed, min_frequency=1)
        _, report = train(spec, texts, dev)
        assert report.bytes["y"] == len(lines["y"]), "the smallest is taken whole"
        return report.bytes["x"] / report.bytes["y"], report.inputs["x"]

    ratio = len(lines["x"]) / len(lines["y"])
    assert taken(1)[0] == ratio
    assert taken(2)[0] == pytest.approx(ratio**0.5, rel=0.3)
    assert taken(2) == taken(2)
    assert taken(2)[1] != taken(2, seed=1)[1]
    with pytest.raises(UsageError, match="reads texts twice"):
        train(TrainSpec(vocab_size=300, variant="classical", temperature=2), {"x": iter(["a b"])})
    with pytest.raises(UsageError, match="temperature must be 1"):
        TrainSpec(vocab_size=300, temperature=0.5)


def test_too_many_distinct_pieces_are_dropped_and_told() -> None:
    rng = random.Random(6)
    hapax = [" ".join("".join(rng.choices("abcdefgh", k=12)) for _ in range(200)) for _ in range(50)]
    texts = [*hapax, "often " * 500]
    spec = TrainSpec(vocab_size=263, variant="classical", most_pieces=1000)
    made, report = train(spec, {"x": texts})
    assert report.pieces["all"] <= 1000
    assert any("were dropped" in warning for warning in report.warnings)
    assert b" often" in made.tokens
    many = train(TrainSpec(vocab_size=263, variant="classical", most_pieces=1000, threads=4), {"x": texts})[0]
    assert many.digest == made.digest
