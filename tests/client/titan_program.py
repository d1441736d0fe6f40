"""The torchtitan example on a machine without accelerator: gives torchtitan, which knows accelerators only, the CPU.

Run by its path with the example's arguments. Nothing of the trainer, its mesh or its checkpoints is replaced.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import torch
from headrace.client.examples.common import main
from torch.distributed.fsdp import FSDPModule
from torchtitan.tools import utils

CPU = SimpleNamespace(
    current_device=lambda: 0,
    device_count=lambda: 1,
    empty_cache=lambda: None,
    get_device_name=lambda device: "CPU",
    get_device_properties=lambda device: SimpleNamespace(total_memory=1 << 34, name="CPU"),
    memory_stats=lambda device: {},
    reset_peak_memory_stats=lambda: None,
    set_device=lambda device: None,
    synchronize=lambda: None,
)


def use_the_cpu() -> None:
    """Before torchtitan's other modules read what the device is."""
    utils.device_type, utils.device_module = "cpu", CPU  # type: ignore[assignment]
    scaled = FSDPModule.set_gradient_divide_factor

    def summed(module: FSDPModule, factor: float) -> None:
        """gloo knows sums, but none that are scaled on the way."""
        scaled(module, factor)
        module.set_force_sum_reduction_for_comms(True)

    FSDPModule.set_gradient_divide_factor = summed  # type: ignore[method-assign]


if not torch.cuda.is_available():
    use_the_cpu()
main(importlib.import_module("headrace.client.examples.torchtitan_train").train, __doc__)
