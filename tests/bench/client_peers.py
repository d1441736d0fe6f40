"""Other loaders over the same token ids, run by `bench_client_peers.py --peers PYTHON` in that interpreter.

    client_peers.py convert TOOL DATA             ->  one JSON line: {} or why the tool is skipped
    client_peers.py reach TOOL DATA STEPS STATE   ->  takes so many steps and saves the position that the tool names
    client_peers.py run TOOL DATA SECONDS [STATE] ->  one JSON line: figures; the position is saved to STATE, or read
                                                      from it when it is there: then only the first batch is timed

DATA holds meta.json (seq_len, batch, weights) and bin/DOMAIN.bin, int32 ids of whole windows. Each loader hands over
one int32 tensor of batch x seq_len a step, mixed by weight and shuffled by the tool's own means, with no worker
processes: everything runs in the trainer's process, as Headrace's client does.
"""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

Maker = Callable[[Path, dict[str, Any], Any], tuple[Iterator[Any], Callable[[], Any]]]


class Windows:
    """Windows of a domain by index, from a memory map."""

    def __init__(self, path: Path, seq_len: int) -> None:
        self._ids = np.memmap(path, dtype=np.int32, mode="r").reshape(-1, seq_len)

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: Any) -> Any:
        return np.array(self._ids[int(index)])


def windows(data: Path, meta: dict[str, Any]) -> dict[str, Windows]:
    return {name: Windows(data / "bin" / f"{name}.bin", meta["seq_len"]) for name in meta["weights"]}


def stacked(rows: list[Any]) -> torch.Tensor:
    return torch.from_numpy(np.stack(rows).view(np.int32))


def endless(loader: Any, batch: int) -> Iterator[Any]:
    """Epoch after epoch, whole batches only."""
    while True:
        for item in loader:
            if len(item) == batch:
                yield item


def mosaic(data: Path, meta: dict[str, Any], state: Any) -> Any:
    """MosaicML Streaming: one Stream a domain, shuffle py1e."""
    from streaming import Stream, StreamingDataLoader, StreamingDataset

    streams = [Stream(local=str(data / "mds" / name), proportion=share) for name, share in meta["weights"].items()]
    size = meta["windows"] // meta["batch"] * meta["batch"]
    dataset = StreamingDataset(
        streams=streams, shuffle=True, batch_size=meta["batch"], epoch_size=size, num_canonical_nodes=1
    )
    loader = StreamingDataLoader(
        dataset, batch_size=meta["batch"], collate_fn=lambda rows: stacked([row["tokens"] for row in rows])
    )
    if state is not None:
        loader.load_state_dict(state)
    return endless(loader, meta["batch"]), loader.state_dict


def litdata(data: Path, meta: dict[str, Any], state: Any) -> Any:
    """litData: CombinedStreamingDataset over TokensLoader."""
    from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset
    from litdata.streaming.item_loader import TokensLoader

    parts = [
        StreamingDataset(
            str(data / "litdata" / name), item_loader=TokensLoader(block_size=meta["seq_len"]), shuffle=True
        )
        for name in meta["weights"]
    ]
    mixed = CombinedStreamingDataset(parts, weights=list(meta["weights"].values()), iterate_over_all=False)
    loader = StreamingDataLoader(mixed, batch_size=meta["batch"], num_workers=0, collate_fn=stacked)
    if state is not None:
        loader.load_state_dict(state)
    return endless(loader, meta["batch"]), loader.state_dict


def huggingface(data: Path, meta: dict[str, Any], state: Any) -> Any:
    """Hugging Face datasets: interleave_datasets of repeated Arrow sources, values taken from Arrow without a cast."""
    import datasets
    from torchdata.stateful_dataloader import StatefulDataLoader

    datasets.disable_progress_bars()
    sources = [
        datasets.load_from_disk(str(data / "arrow" / name)).to_iterable_dataset(num_shards=1).repeat(None)
        for name in meta["weights"]
    ]
    mixed = datasets.interleave_datasets(
        sources, probabilities=list(meta["weights"].values()), seed=1, stopping_strategy="all_exhausted"
    ).with_format("arrow")

    def collate(rows: list[Any]) -> torch.Tensor:
        return stacked([row.column(0).chunk(0).flatten().to_numpy(zero_copy_only=True) for row in rows])

    loader = StatefulDataLoader(mixed, batch_size=meta["batch"], num_workers=0, collate_fn=collate, drop_last=True)
    if state is not None:
        loader.load_state_dict(state)
    return endless(loader, meta["batch"]), loader.state_dict


def grain(data: Path, meta: dict[str, Any], state: Any) -> Any:
    """grain: MapDataset.mix over memory maps, read in the caller's thread as it advises for data in memory."""
    import grain as g

    sources = [g.MapDataset.source(source).seed(1).shuffle().repeat() for source in windows(data, meta).values()]
    mixed = g.MapDataset.mix(sources, weights=list(meta["weights"].values()))
    options = g.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    iterator = iter(mixed.to_iter_dataset(options).batch(meta["batch"], drop_remainder=True))
    if state is not None:
        iterator.set_state(state)
    return map(torch.from_numpy, iterator), iterator.get_state


def nodes(data: Path, meta: dict[str, Any], state: Any) -> Any:
    """torchdata.nodes: MultiNodeWeightedSampler over memory maps."""
    import torchdata.nodes as tn
    from torch.utils.data import RandomSampler

    sources = {
        name: tn.MapStyleWrapper(source, RandomSampler(range(len(source))))
        for name, source in windows(data, meta).items()
    }
    mixed = tn.MultiNodeWeightedSampler(sources, meta["weights"], stop_criteria="CYCLE_FOREVER")
    loader = tn.Loader(tn.Mapper(tn.Batcher(mixed, meta["batch"], drop_last=True), stacked))
    if state is not None:
        loader.load_state_dict(state)
    return iter(loader), loader.state_dict


class Documents(Windows):
    """Windows with the id after their last and the offsets at which documents begin."""

    def __init__(self, path: Path, seq_len: int) -> None:
        super().__init__(path, seq_len)
        self._last = np.fromfile(path.with_suffix(".last"), dtype=np.int32)
        with np.load(path.with_suffix(".npz")) as saved:
            self._edges, self._ends = saved["edges"], saved["ends"]

    def __getitem__(self, index: Any) -> Any:
        number = int(index)
        begin = self._ends[number - 1] if number else 0
        return np.append(self._ids[number], self._last[number]), self._edges[begin : self._ends[number]]


def with_documents(rows: list[Any]) -> tuple[torch.Tensor, ...]:
    """input_ids, labels, position_ids (R, S) int64 and cu_seqlens int32; every window here is full."""
    ids = np.stack([row for row, _ in rows])
    starts = np.zeros(ids.shape, dtype=np.bool_)
    starts[:, 0] = True
    counts = [len(edges) for _, edges in rows]
    starts[np.repeat(np.arange(len(rows)), counts), np.concatenate([edges for _, edges in rows])] = True
    starts = starts[:, :-1]
    columns = np.arange(starts.shape[1], dtype=np.int32)
    positions = columns - np.maximum.accumulate(np.where(starts, columns, np.int32(0)), axis=1)
    bounds = np.append(np.flatnonzero(starts), starts.size).astype(np.int32)
    arrays = (ids[:, :-1].astype(np.int64), ids[:, 1:].astype(np.int64), positions.astype(np.int64), bounds)
    return tuple(map(torch.from_numpy, arrays))


def document_nodes(data: Path, meta: dict[str, Any], state: Any) -> Any:
    """torchdata.nodes as above, giving what Headrace gives of documents."""
    import torchdata.nodes as tn
    from torch.utils.data import RandomSampler

    sources = {
        name: tn.MapStyleWrapper(source, RandomSampler(range(len(source))))
        for name, source in ((n, Documents(data / "bin" / f"{n}.bin", meta["seq_len"])) for n in meta["weights"])
    }
    mixed = tn.MultiNodeWeightedSampler(sources, meta["weights"], stop_criteria="CYCLE_FOREVER")
    loader = tn.Loader(tn.Mapper(tn.Batcher(mixed, meta["batch"], drop_last=True), with_documents))
    if state is not None:
        loader.load_state_dict(state)
    return iter(loader), loader.state_dict


def to_mds(data: Path, meta: dict[str, Any]) -> None:
    from streaming import MDSWriter

    columns = {"tokens": f"ndarray:int32:{meta['seq_len']}"}
    for name, source in windows(data, meta).items():
        with MDSWriter(out=str(data / "mds" / name), columns=columns) as out:
            for index in range(len(source)):
                out.write({"tokens": source[index]})


def to_litdata(data: Path, meta: dict[str, Any]) -> None:
    from litdata.streaming.cache import Cache
    from litdata.streaming.item_loader import TokensLoader

    for name, source in windows(data, meta).items():
        folder = data / "litdata" / name
        folder.mkdir(parents=True)
        size = (32 << 20) // 4 // meta["seq_len"] * meta["seq_len"]
        cache = Cache(str(folder), chunk_size=size, item_loader=TokensLoader(block_size=meta["seq_len"]))
        for index in range(len(source)):
            cache[index] = torch.from_numpy(source[index])
        cache.done()
        cache.merge()


def to_arrow(data: Path, meta: dict[str, Any]) -> None:
    import datasets
    import pyarrow as pa

    datasets.disable_progress_bars()
    features = datasets.Features({"tokens": datasets.List(datasets.Value("int32"), length=meta["seq_len"])})
    for name in meta["weights"]:
        flat = pa.array(np.fromfile(data / "bin" / f"{name}.bin", dtype=np.int32))
        table = pa.table({"tokens": pa.FixedSizeListArray.from_arrays(flat, meta["seq_len"])})
        datasets.Dataset(table).cast(features).save_to_disk(str(data / "arrow" / name), num_shards=1)


def nothing(data: Path, meta: dict[str, Any]) -> None:
    """Reads the memory maps; imports what it needs, to say now whether it is there."""


TOOLS: dict[str, tuple[Maker, Callable[[Path, dict[str, Any]], None], str]] = {
    "MosaicML Streaming": (mosaic, to_mds, "streaming"),
    "litData": (litdata, to_litdata, "litdata"),
    "HF datasets": (huggingface, to_arrow, "datasets"),
    "grain": (grain, nothing, "grain"),
    "torchdata nodes": (nodes, nothing, "torchdata.nodes"),
    "torchdata, documents": (document_nodes, nothing, "torchdata.nodes"),
}


# What a tool's maker imports besides: the clock starts when everything is imported.
IMPORTED = {
    "litData": ("litdata.streaming.item_loader",),
    "HF datasets": ("torchdata.stateful_dataloader", "pyarrow"),
}


def touch(batch: Any) -> None:
    """Reads one id of each page, as a consumer faults them in."""
    for tensor in batch if isinstance(batch, tuple) else (batch,):
        tensor.reshape(-1)[::1024].sum()


def peak_mb() -> float:
    """Most memory that was resident; getrusage would count what the parent held when it forked."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def timed(batches: Iterator[Any], seconds: float, tokens: int) -> dict[str, float]:
    """Takes batches for some seconds; the batch before stays alive meanwhile, as in a for loop."""
    for _ in range(8):
        batch = next(batches)
        touch(batch)
    cpu, begun, taken = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        batch = next(batches)
        touch(batch)
        taken += 1
    wall, used = time.perf_counter() - begun, time.process_time() - cpu
    return {
        "tokens_s": taken * tokens / wall,
        "tokens_cpu_s": taken * tokens / used,
        "peak_mb": peak_mb(),
        "steps": taken,
    }


def reach(tool: str, data: Path, meta: dict[str, Any], steps: int, saved: Path) -> dict[str, float]:
    """Takes `steps` batches from the beginning, and saves what the tool says of its position then."""
    batches, position = TOOLS[tool][0](data, meta, None)
    begun = time.perf_counter()
    for _ in range(steps):
        next(batches)
    state = pickle.dumps(position())
    saved.write_bytes(state)
    return {"reached_s": time.perf_counter() - begun, "state_bytes": len(state)}


def run(tool: str, data: Path, meta: dict[str, Any], seconds: float, saved: Path) -> dict[str, float]:
    make, _, module = TOOLS[tool]
    for name in (module, *IMPORTED.get(tool, ())):
        importlib.import_module(name)
    state = pickle.loads(saved.read_bytes()) if saved.exists() else None
    begun = time.perf_counter()
    batches, position = make(data, meta, state)
    touch(next(batches))
    first = time.perf_counter() - begun
    if state is not None:
        return {"resume_s": first}
    found = timed(batches, seconds, meta["batch"] * meta["seq_len"])
    saved.write_bytes(pickle.dumps(position()))
    return {"first_s": first, **found}


def main() -> None:
    action, tool, data = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    meta = json.loads((data / "meta.json").read_text())
    if action == "convert":
        _, convert, module = TOOLS[tool]
        try:
            __import__(module)
        except Exception as error:
            print(json.dumps({"skip": f"{module} cannot be imported: {type(error).__name__}: {error}"}))
            return
        convert(data, meta)
        print("{}")
        return
    if action == "reach":
        print(json.dumps(reach(tool, data, meta, int(sys.argv[4]), Path(sys.argv[5]))))
        return
    print(json.dumps(run(tool, data, meta, float(sys.argv[4]), Path(sys.argv[5]))))


if __name__ == "__main__":
    main()
