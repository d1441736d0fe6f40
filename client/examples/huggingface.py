"""Hugging Face `Trainer`: a small Llama, trained from the stream.

torchrun --nproc-per-node 2 --rdzv-id mine -m headrace.client.examples.huggingface 127.0.0.1:7750 RUN
"""

from __future__ import annotations

from typing import Any

import torch
from headrace.client.examples.common import Options, main, trace
from headrace.client.launch import ranks_from_env
from headrace.client.torch import Loader
from headrace.client.torch.trainers.huggingface import StreamBatches, StreamTrainerMixin, newest_checkpoint
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments


class StreamTrainer(StreamTrainerMixin, Trainer):
    """`Trainer` that reads the stream."""


class Trace(TrainerCallback):
    """Writes down every micro-batch trained on."""

    def __init__(self, chosen: Options) -> None:
        self._chosen = chosen

    def on_substep_end(self, *args: Any, train_dataloader: StreamBatches, **kwargs: Any) -> None:
        if train_dataloader.newest is not None:
            trace(self._chosen.trace, train_dataloader.newest.host)

    on_step_end = on_substep_end


def train(chosen: Options) -> None:
    with Loader(chosen.server, chosen.run, **ranks_from_env(), **chosen.launch) as stream:
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=stream.open().vocab_size,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
        arguments = TrainingArguments(
            output_dir=str(chosen.folder),
            max_steps=chosen.steps,
            save_steps=chosen.save_every,
            save_total_limit=2,
            learning_rate=1e-2,
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )
        trainer = StreamTrainer(LlamaForCausalLM(config), arguments, stream=stream, callbacks=[Trace(chosen)])
        trainer.train(resume_from_checkpoint=newest_checkpoint(chosen.folder))


if __name__ == "__main__":
    main(train, __doc__)
