"""The client for torch: a loader and an IterableDataset that give tensors."""

from headrace.client.torch.batch import TensorBatch
from headrace.client.torch.broadcast import BroadcastLoader, PeerError
from headrace.client.torch.dataset import StreamDataset
from headrace.client.torch.loader import Loader

__all__ = ["BroadcastLoader", "Loader", "PeerError", "StreamDataset", "TensorBatch"]
