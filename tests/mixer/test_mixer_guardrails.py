"""Guardrails of `headrace mixer serve` in `auto` mode, each seen to act on a real server.

The largest step and the epoch caps are in `test_mixer_service.py`, losses that overflow in `test_mixer_injected.py`.
Here: the floor, the interval, losses that are stale or mostly unusable, and a push that is slow to take effect. Many
steps, so HEADRACE_SLOW=1 runs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headrace.client import DomainLoss, Loader
from mixer_rig import DOCUMENTS, Server
from test_mixer_injected import take, wait_for
from test_mixer_service import entries, tick, weights, write

pytestmark = pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")
EVEN = dict.fromkeys(DOCUMENTS, 0.2)


@pytest.fixture
def run(make_run: Callable[..., str]) -> str:
    return make_run(steps=3000)


@pytest.fixture
def loader(server: Server, run: str) -> Iterator[Loader]:
    with Loader(server.address, run, rank=0, world=1) as opened:
        yield opened


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_no_weight_is_pushed_below_the_floor(server: Server, run: str, loader: Loader, tmp_path: Path) -> None:
    path = write(tmp_path, server, run)
    change(path, "floor = 0.01", "floor = 0.18")
    tick(path)
    for end in (100, 200):
        take(loader, server, run, 110)
        wait_for(server, run, end)
        tick(path)
    found = weights(server, run)
    assert found["noise"] == pytest.approx(0.18)  # the largest step would allow 0.15
    assert found["plain"] > 0.22


def test_an_interval_is_kept(server: Server, run: str, loader: Loader, tmp_path: Path) -> None:
    path = write(tmp_path, server, run)
    change(path, "poll =", "interval = 150\npoll =")
    tick(path)
    take(loader, server, run, 210)  # two windows of 100, one of 150
    wait_for(server, run, 200)
    assert (tick(path), tick(path)) == (1, 0)
    take(loader, server, run, 260)
    wait_for(server, run, 450)
    assert tick(path) == 2
    assert [entry["end"] for entry in entries(path, "decision")] == [150, 300, 450]
    assert len(entries(path, "outcome")) == 1


def test_losses_that_stop_coming_freeze_the_weights(server: Server, run: str, loader: Loader, tmp_path: Path) -> None:
    path = write(tmp_path, server, run)
    tick(path)
    take(loader, server, run, 100)
    for _ in zip(range(110), loader, strict=False):  # steps go on, losses do not
        pass
    wait_for(server, run, 200)
    assert tick(path) == 2
    last = entries(path, "decision")[-1]
    assert (last["decision"], "of 100 steps were reported" in last["reason"]) == ("freeze", True)
    assert weights(server, run) == pytest.approx(EVEN)


def test_losses_that_are_mostly_unusable_freeze_the_weights(
    server: Server, run: str, loader: Loader, tmp_path: Path
) -> None:
    def overflow(step: int, name: str, loss: DomainLoss) -> tuple[str, DomainLoss]:
        return name, DomainLoss(loss_sum=1e300, tokens=64) if name == "other" and step >= 110 else loss

    path = write(tmp_path, server, run)
    tick(path)
    take(loader, server, run, 220, overflow)
    wait_for(server, run, 200)
    assert tick(path) == 2
    last = entries(path, "decision")[-1]
    assert (last["decision"], last["reason"][:27]) == ("freeze", "90% of the losses of `other")
    assert weights(server, run) == pytest.approx(EVEN)


def test_pushes_that_are_slow_to_take_effect_do_not_add_up(
    server: Server, run: str, loader: Loader, tmp_path: Path
) -> None:
    """The mixer looks 95 steps late: its push holds hardly before the next window ends, which then pushes nothing."""
    path = write(tmp_path, server, run)
    tick(path)
    take(loader, server, run, 110)
    wait_for(server, run, 100)
    tick(path)
    take(loader, server, run, 195)  # 305 steps; 297 of them settled
    wait_for(server, run, 295)
    tick(path)
    take(loader, server, run, 105)
    wait_for(server, run, 400)
    assert tick(path) == 2
    decisions = entries(path, "decision")
    assert [entry["decision"] for entry in decisions] == ["hold", "push", "hold", "push"]
    first, second = (entry["from_step"] for entry in entries(path, "outcome"))
    assert second - first >= 50
    assert weights(server, run)["plain"] == pytest.approx(0.3)
