"""The loader: iterate it and get this rank's rows of each step, from any server, after any restart.

    loader = Loader("127.0.0.1:7750", "pretrain-1", rank=rank, world=world)
    loader.load_state_dict(checkpoint["data"])
    for batch in loader:
        ...
        checkpoint["data"] = loader.state_dict()

It connects when the first batch is asked for, in the process that asks. It is its own iterator: `iter` twice goes on,
it does not begin again. A step is taken when the loader has handed it out (its last micro-batch, when there are
several); the state and what the server is told count taken steps, never prefetched ones.

Leaving `with`, `close` or the end of the process gives the run's lease back, and so does SIGTERM after
`headrace.client.exit_on_signal()`; one that is killed leaves it to lapse after 60 s, or to its job's next attempt.

What was given up: a loader has one consumer; two threads that iterate it need a lock of their own.
"""

from __future__ import annotations

import logging
import os
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.client.batch import Batch
from headrace.client.endpoints import Endpoints, check_addresses
from headrace.client.feedback import DomainLoss
from headrace.client.fork import ForkError
from headrace.client.launch import choose_launch, choose_rank
from headrace.client.live import Live
from headrace.client.prefetch import Stats
from headrace.client.retry import ClosedError, keep_trying
from headrace.client.session import Opened, Opening, open_run
from headrace.client.settings import Settings, Tls
from headrace.client.stage import PlainStage, Stage
from headrace.client.state import State
from headrace.proto.errors import HeadraceError, UnavailableError, UsageError

log = logging.getLogger("headrace.client")

STARTS = ("warn", "resume", "beginning")


class Loader(Iterator[Batch]):
    """Batches of a run for one data-parallel rank.

    endpoint       "host:port", "dns:///name:port", or several of them: replicas that all serve the run
    run            the run's name
    rank, world    data-parallel coordinate; required when more than one process was launched
    job, attempt   name of the launch and its restart count; taken from torchrun or Slurm, required when world > 1
    mode           "train" holds the run's lease and confirms; "observe" reads sealed steps only
    takeover       take the lease from another job that still holds it
    start          what to do without a state on a run that is trained on already: "warn" (the default) begins at step 0
                   and says so, "resume" refuses before the lease is taken, "beginning" means it
    peers          how many processes share this rank (tensor, context, pipeline parallelism); more than these are
                   warned of, for they would train on the same rows twice
    micro_batches  hand out each step in this many equal parts
    micro_rows     or in parts of this many rows: their number then follows the batch of the phase
    tls, token_file  how to prove who is calling
    settings       times and sizes
    stage          where batches lie and what is made of them ahead; for layers such as `headrace.client.torch`

    Raises UsageError for arguments that cannot be right; ConflictError, StateMismatchError and others of
    `headrace.proto.errors` when the server refuses; StallError when a batch does not come.
    """

    def __init__(
        self,
        endpoint: str | Sequence[str],
        run: str,
        *,
        rank: int | None = None,
        world: int | None = None,
        job: str | None = None,
        attempt: int | None = None,
        mode: str = "train",
        takeover: bool = False,
        start: str = "warn",
        peers: int = 1,
        micro_batches: int = 1,
        micro_rows: int | None = None,
        tls: Tls | None = None,
        token_file: str | Path | None = None,
        settings: Settings | None = None,
        stage: Stage | None = None,
    ) -> None:
        self._addresses = [endpoint] if isinstance(endpoint, str) else list(endpoint)
        self._tls = tls
        self._token_file = Path(token_file) if token_file is not None else None
        check_addresses(self._addresses, tls=tls, token_file=self._token_file)
        if micro_batches < 1 or (micro_rows is not None and (micro_rows < 1 or micro_batches > 1)):
            raise UsageError(
                f"micro_batches is {micro_batches!r} and micro_rows {micro_rows!r}: give one of them, at least 1"
            )
        if start not in STARTS:
            raise UsageError(f"start must be one of {', '.join(STARTS)}, not {start!r}")
        self._start = start
        self._rank = choose_rank(rank, world, environ=os.environ)
        launch = None
        if mode == "train":
            launch = choose_launch(job, attempt, world=self._rank.world, environ=os.environ)
        self._opening = Opening(
            run=run, mode=mode, launch=launch, rank=self._rank, takeover=takeover, state=None, peers=peers
        )
        self._micro_batches = micro_batches
        self._micro_rows = micro_rows
        self._settings = settings or Settings()
        self._stage = stage or PlainStage()
        self._state: State | None = None
        # The step that is being handed out, in how many parts, and which is next. Set in one go, and left by `took`
        # alone, so that what Ctrl-C has kept from being handed out comes with the next call.
        self._due: tuple[Batch, int, int] | None = None
        self._live: Live | None = None
        self._closing = threading.Event()

    # ---- iterating ----

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> Batch:
        part = self.due()
        self.took()
        return part

    def due(self) -> Batch:
        """What `next` would give, without taking it: said again, it gives the same until it was `took`.

        For layers that make something of a batch before it is handed out, such as `headrace.client.torch`.
        """
        live = self._connected()
        if self._due is None:
            self._due = self._next_step(live)
        batch, parts, index = self._due
        return batch if parts == 1 else batch.part(index, parts)

    def took(self) -> None:
        """What was due is handed out."""
        assert self._due is not None
        batch, parts, index = self._due
        live = self._live
        if live is None:  # another thread has closed it meanwhile
            raise self._is_closed()
        if index + 1 == parts:
            self._take(live, batch)
            self._due = None
        else:
            self._due = (batch, parts, index + 1)

    def _next_step(self, live: Live) -> tuple[Batch, int, int]:
        batch = live.prefetcher.take(live.ledger.taken)
        if batch is None:
            live.confirm_quietly()
            raise StopIteration
        rows = len(batch)
        parts = self._micro_batches if self._micro_rows is None else -(-rows // self._micro_rows)
        if rows % parts or (self._micro_rows is not None and rows % self._micro_rows):
            what = f"{parts} equal parts" if self._micro_rows is None else f"parts of {self._micro_rows}"
            raise UsageError(f"step {batch.step}: the {rows} rows of this rank do not split into {what}")
        return batch, parts, 0

    def _take(self, live: Live, batch: Batch) -> None:
        live.prefetcher.took(batch.step)
        self._state = State(
            run_id=live.opened.run_id,
            spec_digest=live.opened.spec_digest,
            plan_hash=batch.next_plan_hash,
            next_step=batch.step + 1,
        )

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """The position after the steps taken so far: small, JSON-safe, equal on all ranks, O(1).

        Before the first step of a new run it asks the server which run this is, without taking the lease.
        """
        return (self._state or self.open().state()).to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from a state of any world size. Works before and after the first batch.

        Raises StateMismatchError for what is no state; whether it belongs to the run is decided by the server when the
        run is opened, at the latest with the next batch.
        """
        state = State.from_dict(state_dict)
        if self._live is not None:
            self._live.owner.check()
        live, self._live = self._live, None
        if live is not None:
            live.close()  # the server writes what this rank has said, and lets it begin again at another step
        self._due = None
        self._state = state

    def state_after(self, batch: Batch) -> dict[str, Any]:
        """The state of a trainer that trained on `batch` last, for those that fetch ahead of what they train on.

        After a micro-batch that is not the step's last it names that step, which will be trained on again whole.
        """
        opened = self._connected().opened
        whole = batch.micro[0] + 1 == batch.micro[1]
        return State(
            run_id=opened.run_id,
            spec_digest=opened.spec_digest,
            plan_hash=batch.next_plan_hash if whole else batch.plan_hash,
            next_step=batch.step + whole,
        ).to_dict()

    @property
    def micro_batches(self) -> int:
        """In how many parts each step is handed out, where `micro_rows` does not say otherwise."""
        return self._micro_batches

    @property
    def next_step(self) -> int:
        """First step that has not been taken."""
        return self._state.next_step if self._state else 0

    @property
    def stats(self) -> Stats:
        """What waiting has come to since the run was opened."""
        return self._live.prefetcher.stats if self._live else Stats()

    # ---- feedback ----

    def report(self, step: int, segment: int, losses: Mapping[str, DomainLoss]) -> None:
        """Sends the losses of a step's global batch by domain, in the background; see `headrace.client.feedback`.

        Give sums over all ranks, from one rank: reports of several ranks are added up.
        """
        self._connected().reporter().report(step, segment, losses)

    # ---- opening and closing ----

    def open(self) -> Opened:
        """What the server says of the run: domains, shapes, vocabulary, lead, ... Checks the state against it.

        Before the first batch it only looks, without taking the lease: a rank may look, then load a checkpoint. Every
        rank of a job must begin at the same step, so the lease is taken with the first batch.
        """
        if self._live is not None:
            return self._live.opened
        endpoints, opened = self._open(self._opening_as("observe"))
        endpoints.close()
        return opened

    def close(self) -> None:
        """Confirms what was taken and gives the lease back (once every rank of the job has). Ends the iteration.

        Another thread, or a handler of a signal, may call it: who waits for a batch then gets ClosedError at once.
        """
        self._closing.set()
        live, self._live = self._live, None
        if live is not None and live.owner.here():
            live.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._live is not None:
            raise ForkError(
                f"the loader of run `{self._opening.run}` is connected and cannot be sent to another process: make "
                "the loader in the process that uses it, or use num_workers=0"
            )
        return self.__dict__ | {"_closing": self._closing.is_set()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _closing=threading.Event())
        if state["_closing"]:
            self._closing.set()

    def _is_closed(self) -> ClosedError:
        return ClosedError(f"the loader of run `{self._opening.run}` is closed")

    def _connected(self) -> Live:
        if self._live is not None:
            self._live.owner.check()
            return self._live
        if self._closing.is_set():
            raise self._is_closed()
        opening = self._opening_as(self._opening.mode)
        if self._state is None and self._opening.mode == "train":
            if self._start == "resume":
                check_beginning(self.open())
            elif self._start == "beginning":  # the server warns of a job that names no state
                opening = replace(opening, state=self.open().state())
        endpoints, opened = self._open(opening)
        for note in opened.notes:
            log.error("run `%s`:\n%s", opened.run, framed(note))
        self._live = live = Live(
            endpoints,
            opened,
            rank=self._rank,
            settings=self._settings,
            stage=self._stage,
            confirms=bool(opened.lease),
        )
        weakref.finalize(self, live.close)
        if self._closing.is_set():  # meanwhile; `close` may have found nothing to close
            self.close()
            raise self._is_closed()
        return live

    def _opening_as(self, mode: str) -> Opening:
        return replace(self._opening, mode=mode, state=self._state)

    def _open(self, opening: Opening) -> tuple[Endpoints, Opened]:
        endpoints = Endpoints(
            self._addresses,
            tls=self._tls,
            token_file=self._token_file,
            start=self._rank.rank,
            settings=self._settings,
        )
        noted: list[UnavailableError] = []

        def note(error: UnavailableError) -> None:
            if not noted:
                log.warning("%s; trying for %.0f s", error, self._settings.open_timeout)
            noted.append(error)

        timeout = min(self._settings.call_timeout, self._settings.open_timeout)
        try:
            opened = keep_trying(
                lambda: open_run(endpoints, opening, timeout=timeout),
                settings=self._settings,
                stop=self._closing,
                note=note,
                until=time.monotonic() + self._settings.open_timeout,
            )
        except HeadraceError:
            endpoints.close()
            raise
        return endpoints, opened


def check_beginning(opened: Opened) -> None:
    """Refuses to begin a run that was trained on. Ranks of one launch may be `lead` steps apart, so that much is let
    pass: the rank that opens last has seen nothing of what the first has confirmed."""
    if opened.confirmed > opened.lead:
        raise UsageError(
            f"run `{opened.run}` has {opened.confirmed} confirmed steps, and this loader was given no state "
            f'(start="resume"): load the checkpoint\'s state (`load_state_dict`) before the first batch, or say '
            f'start="beginning" to train on steps 0 to {opened.confirmed - 1} once more'
        )


def framed(text: str) -> str:
    """In lines of their own between two rules, so that it is seen among a trainer's other lines."""
    rule = "!" * 100
    return "\n".join((rule, *textwrap.wrap(text, 96), rule))
