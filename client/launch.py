"""Who this process is: its job, attempt and rank, from the launcher or the caller.

Nothing is guessed. Where the environment says that several processes were launched and the caller names no rank, that
is an error: a rank 0 for all would read every row once for each process. Ranks are data-parallel ones, which only the
trainer knows: with tensor, context or pipeline parallelism several processes share one.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from headrace.proto.errors import UsageError

# Variables that say how many processes were launched.
_WORLD_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")

# torchrun's run id when none was given: the same for every job of the world.
_NO_RUN_ID = ("", "none")


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One launch of a trainer: a higher attempt of a job fences the lower ones."""

    job: str
    attempt: int

    def __post_init__(self) -> None:
        if not self.job or len(self.job) > 256:
            raise UsageError(f"job: a name of 1 to 256 characters is needed, not {self.job!r}")
        if not 0 <= self.attempt < 2**32:
            raise UsageError(f"attempt: must be from 0 to 2^32 - 1, not {self.attempt!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """Data-parallel coordinate: rank r of world w takes slots [r*B/w, (r+1)*B/w) of each step."""

    rank: int
    world: int

    def __post_init__(self) -> None:
        if self.world < 1:
            raise UsageError(f"world: must be at least 1, not {self.world!r}")
        if not 0 <= self.rank < self.world:
            raise UsageError(f"rank: must be from 0 to world - 1 = {self.world - 1}, not {self.rank!r}")


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise UsageError(f"environment variable {name}={environ[name]!r} is not a whole number") from None


def launch_from(environ: Mapping[str, str]) -> Launch | None:
    """Job and attempt as torchrun (run id, restart count) or Slurm (job id, restart count) name them, else None."""
    run_id = environ.get("TORCHELASTIC_RUN_ID", "")
    if run_id not in _NO_RUN_ID:
        restarts = _number(environ, "TORCHELASTIC_RESTART_COUNT") if "TORCHELASTIC_RESTART_COUNT" in environ else 0
        return Launch(job=run_id, attempt=restarts)
    if environ.get("SLURM_JOB_ID"):
        restarts = _number(environ, "SLURM_RESTART_COUNT") if "SLURM_RESTART_COUNT" in environ else 0
        return Launch(job=environ["SLURM_JOB_ID"], attempt=restarts)
    return None


def choose_launch(job: str | None, attempt: int | None, *, world: int, environ: Mapping[str, str]) -> Launch:
    """The launch that the caller names, else the launcher's; a process alone may go without a name."""
    if job is not None:
        return Launch(job=job, attempt=attempt or 0)
    if attempt is not None:
        raise UsageError("attempt is given without job: a restart count says nothing without the job it counts for")
    found = launch_from(environ)
    if found is not None:
        return found
    if world == 1:
        return Launch(job=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}", attempt=0)
    hint = ""
    if environ.get("TORCHELASTIC_RUN_ID") in _NO_RUN_ID[1:]:
        hint = " (torchrun was started without --rdzv-id, so its run id is `none` for every job)"
    raise UsageError(
        f"world is {world} but the job has no name{hint}: start it with `torchrun --rdzv-id NAME` or Slurm, or pass "
        "job= and attempt= (the same on all ranks, attempt one higher at each restart), so that a restart can take "
        "the run over from the ranks it replaces"
    )


def choose_rank(rank: int | None, world: int | None, *, environ: Mapping[str, str]) -> Rank:
    """The coordinate that the caller names; 0 of 1 when nobody launched more than one process."""
    if (rank is None) != (world is None):
        raise UsageError("rank and world go together: give both, or neither for a single process")
    if rank is not None and world is not None:
        return Rank(rank=rank, world=world)
    for name in _WORLD_VARIABLES:
        if environ.get(name) and _number(environ, name) > 1:
            raise UsageError(
                f"{name}={environ[name]} says that several processes were launched, but no rank was given: pass "
                "rank= and world= (the data-parallel ones), or **ranks_from_env() where every process is a "
                "data-parallel rank; taking rank 0 for all would train on every row once for each process"
            )
    return Rank(rank=0, world=1)


class Ranks(TypedDict):
    """`rank` and `world`, to be unpacked into a call."""

    rank: int
    world: int


def ranks_from_env(environ: Mapping[str, str] | None = None) -> Ranks:
    """`{"rank": RANK, "world": WORLD_SIZE}` of torchrun, for trainers in which every process is a data-parallel rank.

    With tensor, context or pipeline parallelism it is wrong: there pass the data-parallel coordinate of the mesh.
    """
    environ = os.environ if environ is None else environ
    missing = [name for name in ("RANK", "WORLD_SIZE") if not environ.get(name)]
    if missing:
        raise UsageError(
            f"environment variable {' and '.join(missing)} not set: start with torchrun, or pass rank and world"
        )
    chosen = Rank(rank=_number(environ, "RANK"), world=_number(environ, "WORLD_SIZE"))
    return Ranks(rank=chosen.rank, world=chosen.world)


def holder() -> str:
    """This host and process, for display when another job is refused."""
    return f"{socket.gethostname()} pid {os.getpid()}"
