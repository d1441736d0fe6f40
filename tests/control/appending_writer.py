"""Appends events to a store and prints the number of each after it was acknowledged, until it is killed."""

from __future__ import annotations

import sys

from headrace.server.control.events import Wish
from headrace.server.control.records import NewRun
from headrace.server.control.store import Store
from headrace.server.plan.log import EMPTY_HEAD, WeightsBody

NEW = NewRun(
    name="r",
    kind="train",
    plan_version=1,
    spec_json="{}",
    spec_digest=bytes(32),
    base_dir="/",
    lead=8,
    author="test",
    head=EMPTY_HEAD,
)

store = Store(sys.argv[1], writable=True)
run, _ = store.create_run(NEW)
while True:
    wish = Wish(body=WeightsBody(weights={"a": 0.5, "b": 0.5}))
    print(store.append(run.id, wish, lambda *_: ()).event.sequence, flush=True)
