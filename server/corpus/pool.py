"""Runs unit tasks, here or on worker processes of this machine; results come in the order of the tasks."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from headrace.proto import errors
from headrace.proto.errors import HeadraceError
from headrace.server.corpus.bytestream import SourceError
from headrace.server.corpus.documents import DocumentError
from headrace.server.corpus.unit import Progress, UnitReport, UnitTask, build_unit
from headrace.server.corpus.worker import task_to_json

Outcome = UnitReport | SourceError
"""A finished unit, or the damage that made its domain's policy leave the file out."""


def run_tasks(tasks: Sequence[UnitTask], *, workers: int, cores: int, progress: Progress) -> list[Outcome]:
    """Outcomes in the order of the tasks; the first failure stops the rest. The workers share the cores."""
    workers = min(workers, len(tasks))
    if workers <= 1:
        return [_here(task, progress) for task in tasks]
    return _Pool(tasks, progress).run(workers, threads=max(1, cores // workers))


def _here(task: UnitTask, progress: Progress) -> Outcome:
    try:
        return build_unit(task, progress)
    except SourceError as error:
        if task.domain.on_damaged == "skip":
            return error
        raise


class _Pool:
    def __init__(self, tasks: Sequence[UnitTask], progress: Progress) -> None:
        self._tasks = tasks
        self._progress = progress
        self._todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        # Large files first, so that the last worker is not left alone with one.
        sizes = [task.source.stamp()[0] for task in tasks]
        for number in sorted(range(len(tasks)), key=lambda number: -sizes[number]):
            self._todo.put(number)
        self._outcomes: dict[int, Outcome] = {}
        self._failures: dict[int, Exception] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, workers: int, *, threads: int) -> list[Outcome]:
        servants = [threading.Thread(target=self._serve, args=(threads,), daemon=True) for _ in range(workers)]
        try:
            for servant in servants:
                servant.start()
            for servant in servants:
                servant.join()
        finally:
            self._stop.set()
        if self._failures:
            raise self._failures[min(self._failures)]
        return [self._outcomes[number] for number in range(len(self._tasks))]

    def _serve(self, threads: int) -> None:
        """One worker process and its tasks."""
        command = [sys.executable, "-m", "headrace.server.corpus.worker", str(threads)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
            try:
                while not self._stop.is_set():
                    try:
                        number = self._todo.get_nowait()
                    except queue.Empty:
                        break
                    self._one(process, number)
            finally:
                if self._stop.is_set():
                    process.kill()
                with suppress(BrokenPipeError):
                    process.communicate()

    def _one(self, process: subprocess.Popen[str], number: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(task_to_json(self._tasks[number]) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            message = json.loads(line)
            if "progress" in message:
                self._tell(number, *message["progress"])
            elif "report" in message:
                self._outcomes[number] = UnitReport.from_json(message["report"])
                return
            else:
                self._failed(number, *message["error"])
                return
            if self._stop.is_set():
                return
        if not self._stop.is_set():
            name = self._tasks[number].name
            self._fail(
                number, HeadraceError(f"the worker that built `{name}` was killed; run the build again to go on")
            )

    def _tell(self, number: int, source_bytes: int, documents: int, tokens: int) -> None:
        """Progress; the caller may raise in it to stop the build."""
        try:
            with self._lock:
                if not self._stop.is_set():
                    self._progress(source_bytes, documents, tokens)
        except Exception as error:
            self._fail(number, error)

    def _failed(self, number: int, kind: str, text: str) -> None:
        if kind == SourceError.__name__:
            damage = SourceError(text)
            if self._tasks[number].domain.on_damaged == "skip":
                self._outcomes[number] = damage
            else:
                self._fail(number, damage)
        else:
            known = DocumentError if kind == DocumentError.__name__ else getattr(errors, kind, HeadraceError)
            self._fail(number, known(text))

    def _fail(self, number: int, error: Exception) -> None:
        self._failures[number] = error
        self._stop.set()
