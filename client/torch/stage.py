"""Makes tensors ahead, on the loader's threads: in host memory, or on a device over a stream of its own.

It learns which tensors the trainer asks for and makes those of later batches before it asks. For a CUDA device the ids
are received into pinned memory and cross while the trainer computes; the trainer's stream waits for them, the host
does not.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import torch
from headrace.client.batch import Batch
from headrace.client.buffers import Buffer, plain_buffer
from headrace.client.torch.make import NAMES, DeviceMaker, HostMaker, Maker
from numpy.typing import NDArray


class HostStage:
    """Tensors in host memory."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.maker: Maker = HostMaker()
        self.wanted: set[str] = set()

    def buffer(self, size: int) -> Buffer:
        return plain_buffer(size)

    def warm(self, batch: Batch) -> None:
        for name in tuple(self.wanted):
            batch.once(f"torch.{name}", lambda name=name: self.maker.make(name, batch))  # type: ignore[misc]

    def hand_over(self, batch: Batch) -> None:
        """Called in the trainer's thread when it gets the batch."""


class DeviceStage(HostStage):
    """Tensors on a device that is no CUDA device (tests run it on the CPU): made ahead, without streams."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.maker = DeviceMaker(device)
        self.wanted = {"token_ids"}

    def __reduce__(self) -> tuple[type[DeviceStage], tuple[torch.device]]:
        """Another process gets a stage of its own: locks and streams do not travel."""
        return type(self), (self.device,)


class CudaStage(DeviceStage):
    """Tensors on a CUDA device: pinned buffers, copies on a side stream."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.maker = DeviceMaker(device, non_blocking=True)
        self._lock = threading.Lock()
        self._stream: torch.cuda.Stream | None = None
        # Buffers must not be used again while a copy from them is under way, whatever the trainer has let go of.
        self._copying: deque[tuple[torch.cuda.Event, NDArray[Any]]] = deque()

    def buffer(self, size: int) -> Buffer:
        pinned: Buffer = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
        return pinned

    def warm(self, batch: Batch) -> None:
        with self._lock:
            if self._stream is None:
                self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            while self._copying and self._copying[0][0].query():  # type: ignore[no-untyped-call]
                self._copying.popleft()
            with torch.cuda.stream(self._stream):
                super().warm(batch)
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(self._stream)
            self._copying.append((event, batch.token_ids))
        batch.once("torch.event", lambda: event)

    def hand_over(self, batch: Batch) -> None:
        event = batch.peek("torch.event")
        stream = torch.cuda.current_stream(self.device)
        if event is not None:
            stream.wait_event(event)
        for name in NAMES:  # not only what was wanted: one may have been made on the way to another
            tensor = batch.peek(f"torch.{name}")
            if tensor is not None:
                tensor.record_stream(stream)


def stage_for(device: str | torch.device | None) -> HostStage:
    """Host memory when no device is named."""
    if device is None:
        return HostStage()
    device = whole_device(device)
    return CudaStage(device) if device.type == "cuda" else DeviceStage(device)


def whole_device(device: str | torch.device) -> torch.device:
    """The device with its number: "cuda" is the current one."""
    device = torch.device(device)
    if str(device) == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return device
