"""Runs unit tasks, here or on worker processes of this machine; results come in the order of the tasks."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from headrace.proto import errors
from headrace.proto.errors import HeadraceError
from headrace.server.corpus.unit import Progress, UnitReport, UnitTask, build_unit
from headrace.server.corpus.worker import task_to_json


def run_tasks(tasks: Sequence[UnitTask], *, workers: int, progress: Progress) -> list[UnitReport]:
    """Reports in the order of the tasks; the first failure stops the rest."""
    if workers <= 1 or len(tasks) <= 1:
        return [build_unit(task, progress) for task in tasks]
    return _Pool(tasks, progress).run(min(workers, len(tasks)))


class _Pool:
    def __init__(self, tasks: Sequence[UnitTask], progress: Progress) -> None:
        self._tasks = tasks
        self._progress = progress
        self._todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        # Large files first, so that the last worker is not left alone with one.
        for number in sorted(range(len(tasks)), key=lambda number: -_size(tasks[number])):
            self._todo.put(number)
        self._reports: dict[int, UnitReport] = {}
        self._failures: dict[int, HeadraceError] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, workers: int) -> list[UnitReport]:
        threads = [threading.Thread(target=self._serve, name=f"corpus-{n}", daemon=True) for n in range(workers)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self._stop.set()
        if self._failures:
            raise self._failures[min(self._failures)]
        return [self._reports[number] for number in range(len(self._tasks))]

    def _serve(self) -> None:
        """One worker process and its tasks."""
        environment = {**os.environ, "RAYON_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "headrace.server.corpus.worker"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, encoding="utf-8"
        ) as process:
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
                with self._lock:
                    self._progress(*message["progress"])
                if self._stop.is_set():
                    return
                continue
            if "report" in message:
                self._reports[number] = UnitReport.from_json(message["report"])
            else:
                name, text = message["error"]
                self._fail(number, getattr(errors, name, HeadraceError)(text))
            return
        if not self._stop.is_set():
            name = self._tasks[number].name
            self._fail(
                number, HeadraceError(f"the worker that built `{name}` was killed; run the build again to go on")
            )

    def _fail(self, number: int, error: HeadraceError) -> None:
        self._failures[number] = error
        self._stop.set()


def _size(task: UnitTask) -> int:
    try:
        return os.stat(task.path).st_size
    except OSError:
        return 0
