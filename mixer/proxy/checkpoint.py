"""Checkpoints of the proxy: one .npz of float arrays and a JSON note, read without pickle, written durably.

What holds: model, optimizer moments, steps taken, both configs, the objective's state, and whatever the caller notes
(the state of the stream); a trainer loaded from it goes on as if it had never stopped. `digest` of the model's
weights names the proxy in embeddings.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from headrace.mixer.files import write_atomic
from headrace.mixer.proxy.config import ModelConfig, TrainConfig
from headrace.mixer.proxy.model import Proxy
from headrace.mixer.proxy.train import Objective, Trainer
from headrace.proto.errors import ConfigError

SCHEMA = "headrace.proxy/1"
_NOTE = "__note__"


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """What a checkpoint holds besides the trainer: the caller's note."""

    trainer: Trainer
    note: Mapping[str, Any]


def model_digest(model: Proxy) -> str:
    """SHA-256, hex, of the model's parameters by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + b"\0" + tensor.detach().cpu().numpy().astype("<f4").tobytes())
    return digest.hexdigest()


def save(path: Path, trainer: Trainer, note: Mapping[str, Any] | None = None) -> None:
    """Write the checkpoint; the old one stays until the new one is whole."""
    arrays = {f"model/{name}": tensor.detach().cpu().numpy() for name, tensor in trainer.model.state_dict().items()}
    arrays |= {f"optimizer/{name}": tensor.cpu().numpy() for name, tensor in trainer.optimizer.moments().items()}
    document = {
        "schema": SCHEMA,
        "step": trainer.step,
        "seconds": trainer.seconds,
        "model": trainer.model.config.to_json(),
        "train": trainer.config.to_json(),
        "objective": trainer.objective.note(),
        "note": dict(note or {}),
    }
    arrays[_NOTE] = np.frombuffer(json.dumps(document, sort_keys=True).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomic(path, buffer.getvalue())


def load(path: Path, *, device: str = "cpu", objective: Objective | None = None) -> Saved:
    """Read a checkpoint onto a device. Raises ConfigError when the file is no checkpoint of a proxy."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        document = json.loads(arrays.pop(_NOTE).tobytes())
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema is {document['schema']}, not {SCHEMA}")
        train = TrainConfig(**(document["train"] | {"device": device}))
        trainer = Trainer(ModelConfig(**document["model"]), train, objective)
        trainer.step, trainer.seconds = int(document["step"]), float(document.get("seconds", 0.0))
        _restore(trainer, arrays)
        trainer.objective.restore(document["objective"])
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"`{path}`: not a proxy checkpoint that can be read: {error}") from error
    return Saved(trainer=trainer, note=document["note"])


def _restore(trainer: Trainer, arrays: Mapping[str, Any]) -> None:
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    model, moments = (
        {name.removeprefix(part): value for name, value in tensors.items() if name.startswith(part)}
        for part in ("model/", "optimizer/")
    )
    trainer.model.load_state_dict(model)
    trainer.optimizer.load(moments, trainer.step)
