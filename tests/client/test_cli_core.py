"""The command: help that loads nothing heavy, exit codes, targets, and `state show`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from headrace.client.cli.common import Target, find_page, find_target, print_table
from headrace.client.cli.main import COMMANDS, main
from headrace.client.state import State
from headrace.proto.errors import ConfigError, UsageError
from torch.distributed.checkpoint.state_dict_saver import save

STATE = State(run_id="r-1", spec_digest=b"\x01" * 32, plan_hash=b"\x02" * 32, next_step=41_207).to_dict()


def headrace(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    command = [sys.executable, "-m", "headrace.client.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environ)


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from headrace.client.cli.main import main; main(['--help'], standalone_mode=False); "
        "print(sorted({'torch', 'numpy', 'pyarrow', 'sqlalchemy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(name in done.stdout for name in COMMANDS)


def test_every_command_has_help() -> None:
    for name in COMMANDS:
        result = CliRunner().invoke(main, [name, "--help"])
        assert result.exit_code == 0, (name, result.output)
        assert "Usage" in result.output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["--version"], ["run", "--help"]])
def test_output_that_finds_no_room_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "headrace.client.cli", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "error: cannot write what was asked for: No space left on device; make room and run it again\n"
    )


def test_state_show(tmp_path: Path) -> None:
    plain, inside = tmp_path / "state.json", tmp_path / "checkpoint.json"
    plain.write_text(json.dumps(STATE))
    inside.write_text(json.dumps({"model": {"lr": 1}, "trainer": {"data": STATE}}))
    for path in (plain, inside):
        done = headrace("state", "show", str(path))
        assert done.returncode == 0
        assert "41207" in done.stdout
        assert json.loads(headrace("state", "show", str(path), "--json").stdout) == STATE


def test_state_show_reads_what_torch_saved(tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.zeros(9)}, "data": STATE}, tmp_path / "checkpoint.pt")
    result = CliRunner().invoke(main, ["state", "show", str(tmp_path / "checkpoint.pt"), "--json"])
    assert json.loads(result.output) == STATE
    torch.save({"model": {"w": Path}}, tmp_path / "code.pt")
    result = CliRunner().invoke(main, ["state", "show", str(tmp_path / "code.pt")])
    assert isinstance(result.exception, UsageError)


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (None, 2, "no such file"),
        ("{", 2, "cannot be read as JSON"),
        ("[]", 2, "found 0"),
        (json.dumps({"a": STATE, "b": STATE}), 2, "found 2: a, b"),
        (json.dumps(STATE | {"schema": 9}), 1, "schema is 9"),
        (json.dumps(STATE | {"plan_hash": "xyz"}), 1, "plan_hash"),
    ],
)
def test_state_show_says_what_is_wrong(tmp_path: Path, content: str | None, code: int, says: str) -> None:
    path = tmp_path / "state.json"
    if content is not None:
        path.write_text(content)
    done = headrace("state", "show", str(path))
    assert done.returncode == code
    assert says in done.stderr
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["stat"], ["state", "shwo"], ["state", "show"], ["--nonsense"]])
def test_wrong_use_exits_2(arguments: list[str]) -> None:
    done = headrace(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_near_miss_is_suggested() -> None:
    assert "did you mean `state`?" in headrace("stat").stderr


def test_files_of_one_server_are_not_used_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("SERVER", "STORE", "CA", "CERT", "KEY", "TOKEN_FILE"):
        monkeypatch.delenv(f"HEADRACE_{name}", raising=False)
    (tmp_path / "headrace.toml").write_text('server = "here:1"\nca = "ca.pem"\ntoken_file = "token"')
    named = find_target("here:1", None, folder=tmp_path)
    assert named == find_target(None, None, folder=tmp_path)
    assert (named.ca, named.token_file) == (tmp_path / "ca.pem", tmp_path / "token")
    assert not capsys.readouterr().err
    assert find_target("there:1", None, folder=tmp_path) == Target(server="there:1")
    assert capsys.readouterr().err == "note: ca, token_file of headrace.toml are for here:1, not used for there:1\n"
    own = Path("other.pem")
    assert find_target("there:1", None, folder=tmp_path, ca=own) == Target(server="there:1", ca=own)
    assert not capsys.readouterr().err


def test_target_from_options_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_SERVER", "HEADRACE_STORE"):
        monkeypatch.delenv(name, raising=False)
    assert find_target(None, None, folder=tmp_path) == Target()
    (tmp_path / "headrace.toml").write_text('store = "sqlite:///file.db"')
    assert find_target(None, None, folder=tmp_path) == Target(store="sqlite:///file.db")
    monkeypatch.setenv("HEADRACE_SERVER", "env:1")
    assert find_target(None, None, folder=tmp_path) == Target(server="env:1")
    assert find_target("option:1", None, folder=tmp_path) == Target(server="option:1")
    (tmp_path / "headrace.toml").write_text('page = "https://file:1"\nca = "ca.pem"')
    assert find_page(None, folder=tmp_path) == Target(page="https://file:1", ca=tmp_path / "ca.pem")
    assert find_page("http://option:1", folder=tmp_path) == Target(page="http://option:1")
    monkeypatch.setenv("HEADRACE_PAGE", "http://env:1")
    assert find_page(None, folder=tmp_path) == Target(page="http://env:1")
    with pytest.raises(UsageError, match="exclude"):
        find_target("a:1", "sqlite://", folder=tmp_path)
    with pytest.raises(UsageError, match="HEADRACE_STORE"):
        Target().required()


@pytest.mark.parametrize(("text", "says"), [("x = 1", "`x`"), ("server = 1", "string"), ("server", "cannot be read")])
def test_wrong_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
    for name in ("HEADRACE_SERVER", "HEADRACE_STORE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "headrace.toml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        find_target(None, None, folder=tmp_path)


def test_tables_align(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["domain", "tokens"], [["deu", 12_000_000], ["a-longer-name", 7]])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["domain             tokens", "deu            12,000,000", "a-longer-name           7"]


def test_state_show_of_a_folder(tmp_path: Path) -> None:
    """What DCP and the adapter for Hugging Face write are folders; any other is told apart in words."""
    saved = {"model": {"w": torch.zeros(9)}, "data": STATE, "step": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of there being one process
        save(saved, checkpoint_id=tmp_path / "dcp", no_dist=True)
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "headrace.json").write_text(json.dumps(STATE))
    for name in ("dcp", "hf"):
        done = headrace("state", "show", str(tmp_path / name), "--json")
        assert json.loads(done.stdout) == STATE
    done = headrace("state", "show", str(tmp_path))
    assert done.returncode == 2
    assert "is a folder without headrace.json" in done.stderr
    assert "one of dcp, hf" in done.stderr
