"""`headrace corpus`: what a person types, sees, and gets as an exit code."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from headrace.client.cli import main
from small_corpus import save_byte_tokenizer, some_texts, write_jsonl


@dataclass(frozen=True)
class Done:
    stdout: str
    stderr: str


def run(*arguments: str | Path, code: int = 0) -> Done:
    """The command as its entry point runs it, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["headrace", "corpus", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main.run()
    assert left.value.code == code, err.getvalue()
    return Done(out.getvalue(), err.getvalue())


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    save_byte_tokenizer(tmp_path / "tokenizer.json")
    write_jsonl(tmp_path / "raw/a.jsonl", [*some_texts(1, 30), "", "", "same", "same"])
    path = tmp_path / "CORPUS.toml"
    path.write_text('[corpus]\nout = "out"\n[[domain]]\nname = "d"\nfiles = ["raw/*"]\n', encoding="utf-8")
    return path


def test_build_show_verify(toml: Path) -> None:
    planned = json.loads(run("build", toml, "--dry-run", "--json").stdout)
    assert planned["to_build"] == ["raw/a.jsonl"]
    assert "no text was read" in run("build", toml, "--dry-run").stdout
    assert not (toml.parent / "out").exists()
    assert "read 34 documents = packed 32 + held out 0 + rejected 2" in run("build", toml).stdout
    shown = json.loads(run("show", toml, "--json").stdout)
    assert shown["rejected"] == {"empty": 2}
    books = {"name": "d", "files": 1, "read": 34, "packed": 32, "held_out": 0, "rejected": {"empty": 2}}
    assert shown["entries"] == [books]
    assert "d: read 34, rejected: empty 2" in run("show", toml).stdout
    assert shown["domains"][0]["duplicates"] == 1
    assert shown["domains"][0]["documents"] == 32
    assert "raw/a.jsonl:1  |" in run("show", toml, "--sample", "2").stdout
    assert json.loads(run("verify", toml, "--sources", "--json").stdout)["damaged"] == {}
    shard = next((toml.parent / "out").rglob("*.arrow"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    shard.write_bytes(data)
    assert "damaged: store/" in run("verify", toml, code=1).stdout
    run("build", toml, "--check")
    run("verify", toml)


def test_windows_fill_and_tails_are_known_before_a_run(toml: Path) -> None:
    text = toml.read_text(encoding="utf-8")
    for tail in ("pad", "drop"):
        toml.write_text(text.replace("[[domain]]", f'tail = "{tail}"\n[[domain]]'), encoding="utf-8")
        run("build", toml)
        total = json.loads(run("show", toml, "--json").stdout)["domains"][0]["tokens"]
        view = json.loads(run("show", toml, "--view", "100", "--json").stdout)[0]
        assert view["dropped"] == (total % 100 if tail == "drop" else 0)
        assert view["padding"] == (0 if tail == "drop" else 100 * view["windows"] - total)
        assert view["windows"] == (total // 100 if tail == "drop" else -(-total // 100))
    packed = run("show", toml, "--view", "512:best_fit").stdout.splitlines()
    assert packed[0].split() == ["domain", "windows", "fill", "padding", "dropped", "tail"]
    assert packed[-1].split()[2].endswith("%")
    assert "for example 4096:best_fit" in run("show", toml, "--view", "long", code=2).stderr
    assert "no packing is called `x`" in run("show", toml, "--view", "64:x", code=2).stderr


def test_verify_looks_at_generations_and_the_tokenizer(toml: Path) -> None:
    run("build", toml)
    write_jsonl(toml.parent / "raw/b.jsonl", ["a later one"])
    run("grow", toml)
    assert json.loads(run("verify", toml, "--sources", "--json").stdout)["files"] == 6
    shard = max((toml.parent / "out").rglob("*.arrow"), key=lambda path: path.stat().st_mtime_ns)
    data = shard.read_bytes()
    shard.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    assert "1 damaged" in run("verify", toml, code=1).stdout
    shard.write_bytes(data)
    copy = next((toml.parent / "out").glob("tokenizer-*.json"))
    save_byte_tokenizer(copy, ("<|other|>",))
    assert "it is not the tokenizer of this corpus" in run("verify", toml, code=1).stdout


def test_export_gives_the_held_out_texts_and_their_task(toml: Path) -> None:
    texts = some_texts(5, 400, longest=20)
    write_jsonl(toml.parent / "raw/a.jsonl", texts)
    run("build", toml)
    assert "holds documents out" in run("export", toml, toml.parent / "x", code=2).stderr
    toml.write_text(toml.read_text(encoding="utf-8") + "holdout = 0.1\n", encoding="utf-8")
    shown = json.loads(run("build", toml, "--json").stdout)
    counts = json.loads(run("export", toml, toml.parent / "held", "--json").stdout)
    lines = (toml.parent / "held/d.jsonl").read_text(encoding="utf-8").splitlines()
    assert counts == {"d": shown["held_out"]} == {"d": len(lines)}
    assert {json.loads(line)["text"] for line in lines} < set(texts)
    assert "loglikelihood_rolling" in (toml.parent / "held/d.yaml").read_text(encoding="utf-8")


def test_show_of_a_grown_corpus_names_its_generations(toml: Path) -> None:
    run("build", toml)
    assert "generation" not in run("show", toml).stdout
    write_jsonl(toml.parent / "raw/b.jsonl", some_texts(2, 30))
    run("grow", toml)
    assert (
        "the corpus has grown: `corpus show` of generation-2.json beside it shows the rest" in run("show", toml).stdout
    )
    assert "read 30 documents" in run("show", toml.parent / "out/generation-2.json").stdout


def test_array_job(toml: Path) -> None:
    write_jsonl(toml.parent / "raw/b.jsonl", some_texts(2, 30))
    for share in ("0/2", "1/2"):
        run("build", toml, "--shard", share)
    assert json.loads(run("build", toml, "--dry-run", "--json").stdout)["to_build"] == []
    run("build", toml)
    assert "--shard is i/n" in run("build", toml, "--shard", "2/2", code=2).stderr


def test_mistakes_are_messages_with_exit_code_two(toml: Path) -> None:
    toml.write_text(toml.read_text(encoding="utf-8") + "tail = 1\n", encoding="utf-8")
    assert f"{toml}:6: unknown key" in run("build", toml, code=2).stderr
    assert "name a CORPUS.toml" in run("build", toml.parent / "none.toml", code=2).stderr


def test_not_built_yet(toml: Path) -> None:
    assert "make it with: headrace corpus build" in run("show", toml, code=1).stderr


def test_mistakes_in_the_file_end_with_code_2_and_name_file_and_remedy(toml: Path) -> None:
    good = toml.read_text(encoding="utf-8")
    toml.write_text(good.replace("raw/*", "raw/*.none"), encoding="utf-8")
    assert "no file matches `raw/*.none`" in run("build", toml, code=2).stderr
    toml.write_text(good + 'text = "body"\n', encoding="utf-8")
    said = run("build", toml, code=1).stderr
    assert "raw/a.jsonl:1: no field `body`; fields seen: text; name the field that holds the text" in said
    toml.write_text(good + 'text = "body"\non_bad = "skip"\n', encoding="utf-8")
    said = run("build", toml, code=2).stderr
    assert "`raw/a.jsonl`: none of its 34 rows is usable" in said
    assert 'text = "body"' in said
    toml.write_text(good, encoding="utf-8")
    (toml.parent / "raw/a.jsonl").write_text("", encoding="utf-8")
    assert "read from `raw/a.jsonl` (0 bytes)" in run("build", toml, code=2).stderr
    (toml.parent / "tokenizer.json").unlink()
    assert "headrace tokenizer train" in run("build", toml, code=2).stderr
