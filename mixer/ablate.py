"""A sweep: candidate mixtures, a run and a proxy for each, by processes of this machine, resumable trial by trial.

Each candidate becomes a run of its own on the server (made from a template RUN.toml with its name and weights
replaced), so what a proxy saw has the same proof as any other run. What holds: trials that are there are not made
again; one that fails is named with its error and the others go on; the runs have the names `<sweep>-<candidate>`,
and making an equal one again is no error. What was given up: other machines; start the same sweep there with other
candidates and join the folders.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headrace.mixer.simplex import Weights
from headrace.mixer.trials import Trial, load_trial
from headrace.proto.errors import ConfigError, HeadraceError, UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """What all trials share. plan: fields of ProxyPlan, its connection of `tls` and `token_file` only; windows:
    held-out rows to measure (0: all that are sealed); workers: processes at a time; threads: of each."""

    name: str
    endpoint: str
    held_out: str
    folder: Path
    plan: Mapping[str, Any]
    windows: int = 0
    workers: int = 2
    threads: int = 1

    def __post_init__(self) -> None:
        if self.workers < 1 or self.threads < 1 or self.windows < 0:
            raise UsageError("ablate: workers and threads must be at least 1, windows not below 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One trial to make: candidate, its weights, the run that serves them."""

    name: str
    weights: Weights
    run: str


def spec_text(template: str, *, name: str, weights: Mapping[str, float], place: str) -> str:
    """A RUN.toml like the template with another name and, in every phase, these weights. Raises ConfigError."""
    try:
        document = tomllib.loads(template)
        document["run"]["name"] = name
        phases = document["phase"]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise ConfigError(f"`{place}`: not a RUN.toml with [run] and [[phase]]: {error}") from error
    document["phase"] = [phase | {"weights": dict(weights)} for phase in phases]
    return dump_toml(document)


def dump_toml(document: Mapping[str, Any]) -> str:
    """TOML of tables, arrays of tables, inline tables and plain values: what a RUN.toml is made of."""
    lines: list[str] = []
    for name, value in document.items():
        for entry in value if isinstance(value, list) else [value]:
            lines.append(f"[[{_key(name)}]]" if isinstance(value, list) else f"[{_key(name)}]")
            plain = {k: v for k, v in entry.items() if not (name == "domain" and isinstance(v, dict))}
            lines += [f"{_key(key)} = {_value(item)}" for key, item in plain.items()]
            for key, table in entry.items():
                if key not in plain:
                    lines.append(f"[{_key(name)}.{_key(key)}]")
                    lines += [f"{_key(inner)} = {_value(item)}" for inner, item in table.items()]
            lines.append("")
    return "\n".join(lines)


def _key(name: str) -> str:
    return name if name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name) else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return repr(value)


def path_of(sweep: Sweep, name: str) -> Path:
    """Where a candidate's trial is kept."""
    return sweep.folder / f"{name}.trial.json"


def sweep_trials(sweep: Sweep, jobs: Sequence[Job], say: Callable[[str], None]) -> tuple[Trial, ...]:
    """Make the trials that are missing; all, in the order of the jobs. Raises HeadraceError naming failed ones."""
    sweep.folder.mkdir(parents=True, exist_ok=True)
    missing = [job for job in jobs if not path_of(sweep, job.name).exists()]
    say(f"{len(jobs) - len(missing)} of {len(jobs)} trials are there, {len(missing)} to make")
    failed = _work(sweep, missing, say)
    if failed:
        raise HeadraceError(f"{len(failed)} trials failed: {'; '.join(failed)}; start the sweep again to try them anew")
    return tuple(load_trial(path_of(sweep, job.name)) for job in jobs)


def _work(sweep: Sweep, jobs: Sequence[Job], say: Callable[[str], None]) -> list[str]:
    waiting, running, failed = list(jobs), dict[str, subprocess.Popen[str]](), list[str]()
    try:
        while waiting or running:
            while waiting and len(running) < sweep.workers:
                job = waiting.pop(0)
                running[job.name] = _start(sweep, job)
            for name in [name for name, process in running.items() if process.poll() is not None]:
                process = running.pop(name)
                _, errors = process.communicate()
                say(f"{name}: {'done' if process.returncode == 0 else 'failed'}")
                if process.returncode:
                    failed.append((errors.strip().splitlines() or [f"`{name}` ended with {process.returncode}"])[-1])
            time.sleep(0.05)
    finally:
        for process in running.values():
            process.terminate()
            process.wait()
    return failed


def _start(sweep: Sweep, job: Job) -> subprocess.Popen[str]:
    shared = {name: value for name, value in asdict(sweep).items() if name not in ("name", "workers", "folder")}
    described = json.dumps(shared | asdict(job) | {"folder": str(sweep.folder)}, default=str)  # paths of a connection
    return subprocess.Popen(
        [sys.executable, "-m", "headrace.mixer.proxy.trial", described],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": str(sweep.threads)},
    )


def at_size(sweep: Sweep, size: str, steps: int | None = None) -> Sweep:
    """The same sweep with a larger proxy, in a folder beside: the check at an intermediate size."""
    plan = dict(sweep.plan) | {"size": size, "steps": steps}
    return replace(sweep, plan=plan, folder=sweep.folder.with_name(f"{sweep.folder.name}-{size}"))
