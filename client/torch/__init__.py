"""The client for torch: a loader and an IterableDataset that give tensors."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "headrace.client.torch needs torch, which is not installed; install it with: pip install 'headrace[torch]', or "
        "use headrace.client.Loader, which gives NumPy arrays",
        name="torch",
    ) from None

from headrace.client.torch.batch import TensorBatch
from headrace.client.torch.broadcast import BroadcastLoader, PeerError
from headrace.client.torch.dataset import StreamDataset
from headrace.client.torch.loader import Loader

__all__ = ["BroadcastLoader", "Loader", "PeerError", "StreamDataset", "TensorBatch"]
