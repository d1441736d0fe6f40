"""Job, attempt and rank: from the launcher, from the caller, never guessed."""

from __future__ import annotations

import pytest
from headrace.client import Loader, ranks_from_env
from headrace.client.launch import Launch, choose_launch, choose_rank
from headrace.proto.errors import UsageError

TORCHRUN = {"TORCHELASTIC_RUN_ID": "abc", "TORCHELASTIC_RESTART_COUNT": "3"}
SLURM = {"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "2"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TORCHRUN, Launch(job="abc", attempt=3)),
        (SLURM, Launch(job="77", attempt=2)),
        ({"SLURM_JOB_ID": "77"}, Launch(job="77", attempt=0)),
        (SLURM | TORCHRUN, Launch(job="abc", attempt=3)),
        (SLURM | {"TORCHELASTIC_RUN_ID": "none"}, Launch(job="77", attempt=2)),
    ],
)
def test_launchers(environ: dict[str, str], expected: Launch) -> None:
    assert choose_launch(None, None, world=8, environ=environ) == expected
    assert choose_launch("mine", 5, world=8, environ=environ) == Launch(job="mine", attempt=5)


def test_a_job_is_needed_with_several_ranks() -> None:
    with pytest.raises(UsageError, match="rdzv-id"):
        choose_launch(None, None, world=2, environ={"TORCHELASTIC_RUN_ID": "none"})
    with pytest.raises(UsageError, match="job="):
        Loader("127.0.0.1:1", "toy", rank=0, world=2)
    alone = choose_launch(None, None, world=1, environ={})
    assert alone != choose_launch(None, None, world=1, environ={}), "two processes alone are two jobs"


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"])
def test_missing_rank_with_several_processes_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "4")
    with pytest.raises(UsageError, match=f"{name}=4"):
        Loader("127.0.0.1:1", "toy")
    Loader("127.0.0.1:1", "toy", rank=3, world=4, job="j")
    Loader("127.0.0.1:1", "toy", rank=0, world=1)


@pytest.mark.parametrize(("rank", "world"), [(None, 2), (0, None), (2, 2), (-1, 2), (0, 0)])
def test_ranks_that_cannot_be(rank: int | None, world: int | None) -> None:
    with pytest.raises(UsageError):
        choose_rank(rank, world, environ={})


def test_ranks_from_env() -> None:
    assert ranks_from_env({"RANK": "3", "WORLD_SIZE": "4"}) == {"rank": 3, "world": 4}
    for environ in ({}, {"RANK": "3"}, {"RANK": "x", "WORLD_SIZE": "4"}, {"RANK": "4", "WORLD_SIZE": "4"}):
        with pytest.raises(UsageError):
            ranks_from_env(environ)
