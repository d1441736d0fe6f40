"""A loader in child processes of every start method, before and after it has connected; one line of JSON a case.

python workers_program.py ADDRESS RUN
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from typing import Any

from headrace.client import ForkError, Loader, Settings

SETTINGS = Settings(open_timeout=20, stall_timeout=20)


def make() -> Loader:
    return Loader(sys.argv[1], sys.argv[2], mode="observe", settings=SETTINGS)


def say(case: list[Any]) -> None:
    os.write(1, json.dumps(case).encode() + b"\n")  # one write, so that lines of several processes do not mix


def child(method: str, state: str, loader: Loader | None, words: list[str]) -> None:
    sys.argv = words
    try:
        with loader or make() as mine:
            say([method, state, next(mine).step])
    except ForkError as error:
        say([method, state, str(error)])


def main() -> None:
    connected, fresh = make(), make()
    assert next(connected).step == 0
    children = []
    for method in ("spawn", "forkserver", "fork"):
        context: Any = multiprocessing.get_context(method)
        for state, loader in (("connected", connected), ("fresh", fresh), ("own", None)):
            process = context.Process(target=child, args=(method, state, loader, sys.argv))
            try:
                process.start()
            except ForkError as error:  # it would have had to be pickled
                say([method, state, str(error)])
            else:
                children.append(process)
    for process in children:
        process.join(60)
        assert process.exitcode == 0, process
    assert next(connected).step == 1
    assert next(fresh).step == 0


if __name__ == "__main__":
    main()
