"""For trainers whose loss knows no weights of rows: a run that has some is trained on as if it had none, and told so.

Loss weights of domains change the objective and not the stream. Megatron's loss mask carries them; where a trainer
takes the plain mean over labels there is no place for them, and a run must not lose them without a word.
"""

from __future__ import annotations

import logging

from headrace.client.torch.batch import TensorBatch

log = logging.getLogger("headrace.client")


class NoWeights:
    """Warns once, at the first batch that has a weight other than 1 on a row with labels."""

    def __init__(self, trainer: str, instead: str) -> None:
        self._trainer, self._instead = trainer, instead
        self._told = False

    def see(self, batch: TensorBatch) -> None:
        host = batch.host
        if not self._told and ((host.loss_weight != 1) & ~host.emptied).any():
            self._told = True
            log.warning(
                "step %d: rows have loss weights, and %s takes the mean of all labels alike: they are not applied; %s",
                batch.step,
                self._trainer,
                self._instead,
            )
