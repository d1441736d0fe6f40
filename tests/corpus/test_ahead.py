"""Stages in threads: the order is kept, errors come where they happened, and nobody is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from headrace.server.corpus.ahead import ahead, in_order


def light(item: int) -> bool:
    return False


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("headrace-")}


def numbers(last: int, fails: bool = False) -> Iterator[int]:
    yield from range(last)
    if fails:
        raise ValueError("at the end")


def test_order_is_kept_by_any_number_of_threads() -> None:
    def slow(item: int) -> int:
        time.sleep(0.002 * (item % 3))
        return item * item

    for count in (1, 2, 5):
        with closing(ahead(numbers(50), light)) as items:
            assert list(in_order(slow, items, count, light)) == [item * item for item in range(50)]
    assert not threads()


def test_error_comes_after_all_that_was_made_before_it() -> None:
    found: list[int] = []
    with closing(ahead(numbers(7, fails=True), light)) as items, pytest.raises(ValueError, match="at the end"):
        found.extend(in_order(lambda each: each, items, 2, light))
    assert found == list(range(7))


def test_error_of_the_work_is_that_of_the_first_item_that_has_one() -> None:
    def work(item: int) -> int:
        if item >= 3:
            time.sleep(0.01 if item == 3 else 0)
            raise ValueError(str(item))
        return item

    found: list[int] = []
    with pytest.raises(ValueError, match=r"^3$"):
        found.extend(in_order(work, numbers(20), 3, light))
    assert found == [0, 1, 2]


def test_caller_who_leaves_stops_the_thread() -> None:
    made = []

    def endless() -> Iterator[int]:
        while True:
            made.append(len(made))
            yield made[-1]

    with closing(ahead(endless(), light)) as items:
        assert [next(items) for _ in range(3)] == [0, 1, 2]
    assert not threads()
    assert len(made) <= 6, "no more is made ahead than a few items"


def test_heavy_item_is_alone() -> None:
    """Nothing is made behind it until the last stage asks for more."""
    made = []

    def items() -> Iterator[int]:
        for number in range(6):
            made.append(number)
            yield number

    def heavy(item: int) -> bool:
        return item == 2

    with closing(ahead(items(), heavy)) as found:
        for item in in_order(lambda each: each, found, 2, heavy):
            if item == 2:
                time.sleep(0.05)
                assert made == [0, 1, 2]
    assert made == list(range(6))
