"""torchtitan 0.3, fed by the stream: a config to put where the trainer's `dataloader` goes.

    config.dataloader = StreamDataLoader.Config(server="127.0.0.1:7750", run="pretrain-1")
    config.tokenizer = NoTokenizer.Config()

torchtitan's own loaders refuse another data-parallel degree; this one's state has no rank, so a checkpoint goes on at
any degree that divides the batch. Rows arrive with shifted labels and positions that begin again in each document. The
run's sequence length must be the trainer's, and the run's batch `local_batch_size` x data-parallel degree x
accumulation steps (`training.global_batch_size`): a step is taken when its last micro-batch is, so a checkpoint in the
middle of one names that step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from headrace.client.launch import launch_from
from headrace.client.torch.batch import TensorBatch
from headrace.client.torch.groups import shared_job
from headrace.client.torch.loader import Loader
from headrace.client.torch.trainers.weights import NoWeights
from headrace.proto.errors import UsageError
from torch import Tensor
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer


class StreamDataLoader(BaseDataLoader):
    """What torchtitan builds from its config. All ranks of one data-parallel coordinate read the same rows."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """`server` is one address, or several with commas between; the rest as for `Loader`."""

        server: str = ""
        run: str = ""
        job: str | None = None
        attempt: int | None = None
        takeover: bool = False
        start: str = "warn"

    def __init__(
        self,
        config: StreamDataLoader.Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        seq_len: int,
        local_batch_size: int,
        **_: Any,
    ) -> None:
        self._seq_len = seq_len
        self.newest: TensorBatch | None = None  # what was handed out last
        self._weights = NoWeights("torchtitan", "give it a loss that takes `dataloader.newest.loss_weight`")
        job = config.job
        if job is None and launch_from(os.environ) is None and dp_world_size > 1:
            job = shared_job()
        self.loader = Loader(
            config.server.split(","),
            config.run,
            rank=dp_rank,
            world=dp_world_size,
            job=job,
            attempt=config.attempt,
            takeover=config.takeover,
            start=config.start,
            micro_rows=local_batch_size,
        )

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        """({"input": ids, "positions": positions}, labels) a micro-batch of `local_batch_size` rows."""
        for batch in self.loader:
            if batch.host.seq_len != self._seq_len:
                raise UsageError(
                    f"step {batch.step}: rows have {batch.host.seq_len} tokens, torchtitan is set to {self._seq_len}; "
                    "make training.seq_len the run's"
                )
            self.newest = batch
            self._weights.see(batch)
            yield {"input": batch.input_ids, "positions": batch.position_ids}, batch.labels

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # torchtitan loads an empty state where a checkpoint has none.
        if state_dict:
            self.loader.load_state_dict(state_dict)


class NoTokenizer(BaseTokenizer):
    """torchtitan builds a tokenizer for every run; the stream brings ids, so this one needs no files."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """Nothing to set."""

    def __init__(self, config: NoTokenizer.Config, **_: Any) -> None:
        super().__init__()

    def encode(self, *_: Any, **__: Any) -> NoReturn:
        raise UsageError(
            "the tokenizer is asked to encode, but the stream has token ids and NoTokenizer knows no text; set "
            "config.tokenizer and hf_assets_path to the tokenizer of the run's corpus"
        )

    decode = encode
    get_vocab_size = encode
