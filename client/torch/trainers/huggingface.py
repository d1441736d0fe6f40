"""Hugging Face `Trainer` (and Accelerate under it), fed by the stream.

    class MyTrainer(StreamTrainerMixin, Trainer): ...
    trainer = MyTrainer(model=model, args=args, stream=loader)
    trainer.train(resume_from_checkpoint=True)

By default Accelerate reads on rank 0 and broadcasts, or keeps 1/N of each rank's stream; so the stream is never
prepared by it. In a loop of your own leave the loader out of `accelerator.prepare` too: it takes a `Loader` as it is,
but would shard a DataLoader over `StreamDataset` again.

The state lies as `headrace.json` in each `checkpoint-N` folder, and batches are never skipped by reading them again.
One that a crash has left half written is passed over: `resume_from_checkpoint=True` takes the newest that is whole.
Models of transformers shift labels themselves unless they are given `shift_labels`, which they are.

One optimizer step is one step of the run: make the loader with `micro_batches=args.gradient_accumulation_steps`, and
set `max_steps`. `per_device_train_batch_size` is not used: the run's batch and the world decide it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.torch.batch import TensorBatch
from headrace.client.torch.loader import Loader
from headrace.client.torch.trainers.weights import NoWeights
from headrace.proto.errors import UsageError
from torch import Tensor
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object

STATE_FILE = "headrace.json"


def trainer_inputs(batch: TensorBatch) -> dict[str, Tensor]:
    """What a causal model of transformers takes; the loss is taken on `shift_labels`."""
    return {
        "input_ids": batch.input_ids,
        "position_ids": batch.position_ids,
        "labels": batch.labels,
        "shift_labels": batch.labels,
    }


class StreamBatches:
    """The stream as the iterable that Trainer's loop reads: no length, no sampler, nothing for Accelerate to shard."""

    def __init__(self, stream: Loader) -> None:
        self.stream = stream
        self.newest: TensorBatch | None = None
        self._weights = NoWeights("a model of transformers", "override compute_loss and take `newest.loss_weight`")

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for batch in self.stream:
            self.newest = batch
            self._weights.see(batch)
            yield trainer_inputs(batch)


class StreamTrainerMixin(_Base):
    """Put it before `Trainer` among the bases, and give `stream=`."""

    def __init__(self, *args: Any, stream: Loader, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stream = stream
        if self.args.max_steps <= 0:
            raise UsageError("TrainingArguments: set max_steps; the stream has no length to count epochs by")
        if stream.micro_batches != self.args.gradient_accumulation_steps:
            raise UsageError(
                f"gradient_accumulation_steps is {self.args.gradient_accumulation_steps}, the loader hands out "
                f"{stream.micro_batches} micro-batches a step; make it with micro_batches="
                f"{self.args.gradient_accumulation_steps}, so that an optimizer step is a step of the run"
            )
        # The state says where to go on: Trainer must not read and drop what was trained on.
        self.args.ignore_data_skip = True

    def get_train_dataloader(self) -> Any:
        return StreamBatches(self.stream)

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> Any:
        """As `Trainer.train`; with a checkpoint the stream goes on from the state in it."""
        folder = resume_from_checkpoint
        if folder is True:
            folder = newest_checkpoint(self.args.output_dir)
            if folder is None:
                raise UsageError(f"no whole checkpoint in {self.args.output_dir} to resume from")
        if folder:
            self.stream.load_state_dict(_read(Path(folder) / STATE_FILE))
        return super().train(resume_from_checkpoint=folder or None, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder / STATE_FILE, self.stream.state_dict())
        super()._save_checkpoint(model, trial)


def newest_checkpoint(folder: str | Path) -> str | None:
    """The newest checkpoint that is whole, or None: Trainer writes its own state last, when the rest is there."""
    whole = {int(path.parent.name.rpartition("-")[2]): path.parent for path in _last_files(Path(folder))}
    return str(whole[max(whole)]) if whole else None


def _last_files(folder: Path) -> Iterator[Path]:
    return folder.glob(f"{PREFIX_CHECKPOINT_DIR}-[0-9]*/{TRAINER_STATE_NAME}")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{path} is missing: the checkpoint was saved without the stream's state; resume from one that has it, or "
            "give the loader a state and train without resume_from_checkpoint"
        ) from None


def _write(path: Path, state: dict[str, Any]) -> None:
    fresh = path.with_suffix(".tmp")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
