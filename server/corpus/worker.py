"""A worker process: tasks come in as lines of JSON, reports and progress go out as lines of JSON.

Started with this interpreter and nothing of the caller's: no fork, no `__main__` imported again, no global setting
changed, nothing pickled. So a build may be called from a notebook, a thread, or twice in one process.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from headrace.proto.errors import HeadraceError
from headrace.server.corpus.spec import DomainSpec
from headrace.server.corpus.unit import UnitTask, build_unit
from headrace.server.service.malloc import keep_freed_memory


def task_to_json(task: UnitTask) -> str:
    plain: dict[str, Any] = {name: getattr(task, name) for name in task.__slots__}
    plain["domain"] = {name: getattr(task.domain, name) for name in task.domain.__slots__}
    return json.dumps(plain)


def task_from_json(line: str) -> UnitTask:
    plain = json.loads(line)
    domain = plain.pop("domain")
    lists = {name: tuple(domain[name]) for name in ("files", "keep")}
    return UnitTask(domain=DomainSpec(**{**domain, **lists}), **plain)


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serves tasks until the input ends; the first argument is the number of encoder threads."""
    keep_freed_memory()
    threads = int(sys.argv[1])
    for line in sys.stdin:
        try:
            report = build_unit(
                task_from_json(line),
                lambda size, documents, tokens: _say({"progress": [size, documents, tokens]}),
                threads=threads,
            )
        except HeadraceError as error:
            _say({"error": [type(error).__name__, str(error)]})
        else:
            _say({"report": report.to_json()})


if __name__ == "__main__":
    main()
