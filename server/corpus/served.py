"""What is read from a corpus, and how reading fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from headrace.native import DamagedError
from headrace.proto.errors import DataLossError, OutOfRangeError


@dataclass(frozen=True, slots=True)
class Rows:
    """Windows as they are served.

    Attributes:
        ids: rows x (seq_len + 1) little-endian ids
        edge_ends, edges: the offsets in row r at which another document begins are `edges[edge_ends[r-1]:edge_ends[r]]`
        real_ids: real ids of each row, masked ones among them; those after them are padding
        mask_ends, masks: the masked ids of row r, served as padding, are the pairs [begin, end) in
            `masks[mask_ends[r-1]:mask_ends[r]]`; both may be empty when nothing is masked
    """

    ids: bytes
    edge_ends: npt.NDArray[np.uint32]
    edges: npt.NDArray[np.uint32]
    real_ids: npt.NDArray[np.uint32]
    mask_ends: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    masks: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))


class SourcePart(NamedTuple):
    """Tokens [begin, end) of the document in `row` (from 1) of `file`."""

    file: str
    row: int
    begin: int
    end: int


class DamagedShardError(DataLossError):
    """Bytes of a shard, or of the index beside it, are not what was written; `path` is that file."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


@contextmanager
def store_errors() -> Iterator[None]:
    """The store's own errors as Headrace's."""
    try:
        yield
    except DamagedError as error:
        raise DamagedShardError(str(error), path=str(getattr(error, "path", ""))) from None
    except OSError as error:
        raise DataLossError(str(error)) from None
    except ValueError as error:
        raise OutOfRangeError(str(error)) from None
