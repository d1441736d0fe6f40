"""Stages of a pipeline in threads of their own: one works while those behind it do.

Order is kept, so what comes out does not depend on how fast anybody is, and an error comes out where it happened, after
all that was made before it. What is in flight is a few items. A heavy one (a text of hundreds of megabytes) goes
through alone: the stages before it wait until the last one is done with it, so that memory holds one of them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_DEPTH = 2
_PATIENCE = 1.0  # seconds: a thread that hashes a large file is not waited for, and ends by itself
Item = TypeVar("Item")
Made = TypeVar("Made")


class _Box(Generic[Item]):
    """Hands items from the thread that makes them to the one that takes them."""

    def __init__(self, is_heavy: Callable[[Item], bool]) -> None:
        self._is_heavy = is_heavy
        self._items: deque[Item] = deque()
        self._error: BaseException | None = None
        self._done = self._stopped = self._alone = False
        self._turn = threading.Condition()

    def fill(self, items: Iterator[Item]) -> None:
        """Makes the items; ends early when nobody wants more."""
        try:
            for item in items:
                if not self._put(item):
                    return
                del item
        except BaseException as error:
            self._error = error
        finally:
            with self._turn:
                self._done = True
                self._turn.notify_all()

    def _put(self, item: Item) -> bool:
        with self._turn:
            self._items.append(item)
            self._alone = self._is_heavy(item)
            self._turn.notify_all()
            del item
            self._turn.wait_for(lambda: self._stopped or (not self._alone and len(self._items) < _DEPTH))
            return not self._stopped

    def take(self) -> Iterator[Item]:
        while True:
            with self._turn:
                if not self._items:
                    # Whoever asks has let go of all that it got.
                    self._alone = False
                    self._turn.notify_all()
                self._turn.wait_for(lambda: self._items or self._done)
                if not self._items:
                    break
                item = self._items.popleft()
                self._turn.notify_all()
            yield item
            del item
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        with self._turn:
            self._stopped = True
            self._items.clear()
            self._turn.notify_all()


def ahead(items: Iterator[Item], is_heavy: Callable[[Item], bool]) -> Generator[Item, None, None]:
    """The items, made by a thread while the caller works on those before; close it to stop the thread."""
    box = _Box(is_heavy)
    thread = threading.Thread(target=box.fill, args=(items,), daemon=True, name="headrace-ahead")
    thread.start()
    try:
        yield from box.take()
    finally:
        box.stop()
        thread.join(_PATIENCE)


def in_order(
    work: Callable[[Item], Made], items: Iterator[Item], threads: int, is_heavy: Callable[[Item], bool]
) -> Iterator[Made]:
    """`work` of each item, on several threads at once, in the order of the items; a heavy one is worked on alone."""
    running: deque[Future[Made]] = deque()
    failure: Exception | None = None
    with ThreadPoolExecutor(threads, "headrace-work") as pool:
        while True:
            try:
                item = next(items)
            except StopIteration:
                break
            except Exception as error:
                failure = error
                break
            alone = is_heavy(item)
            while running and (alone or len(running) > threads):
                yield running.popleft().result()
            if alone:
                yield work(item)
            else:
                running.append(pool.submit(work, item))
            del item
        while running:
            yield running.popleft().result()
    if failure is not None:
        raise failure
