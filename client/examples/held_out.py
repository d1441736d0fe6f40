"""Loss of a trained model by domain, on documents that no training view holds: a run of kind `eval`.

python -m headrace.client.examples.held_out 127.0.0.1:7750 EVAL_RUN --folder checkpoints

The run is read whole, in its fixed order, by an observer: nothing is confirmed, and the training goes on meanwhile.
CORPUS.toml says `holdout = 0.001`; RUN.toml says `kind = "eval"`, with a phase without steps and without weights.
"""

from __future__ import annotations

import math
from collections import Counter

import torch
from headrace.client.examples.common import Model, Options, main
from headrace.client.torch import Loader
from headrace.client.torch.losses import domain_sums
from torch.nn import functional


def evaluate(chosen: Options) -> dict[str, float]:
    """Mean loss of each domain in nats a token, printed with its tokens and perplexity."""
    device = "cuda" if torch.cuda.is_available() else None
    losses, tokens = Counter[str](), Counter[str]()
    with Loader(chosen.server, chosen.run, rank=0, world=1, mode="observe", device=device) as loader, torch.no_grad():
        model = Model(loader.open().vocab_size).to(device)
        model.load_state_dict(torch.load(chosen.folder / "newest.pt", weights_only=True)["model"])
        for batch in loader:
            logits = model(batch.input_ids, batch.position_ids, batch.document_ids)
            each = functional.cross_entropy(logits.flatten(0, 1).float(), batch.labels.flatten(), reduction="none")
            sums = domain_sums(each, batch).tolist()
            for place, name in enumerate(batch.domain_names):
                losses[name] += sums[0][place]
                tokens[name] += round(sums[1][place])
    found = {name: losses[name] / count for name, count in sorted(tokens.items()) if count}
    for name, loss in found.items():
        print(f"{name}: {loss:.4f} nats a token over {tokens[name]:,} held-out tokens, perplexity {math.exp(loss):.2f}")
    return found


if __name__ == "__main__":
    main(evaluate, __doc__)
