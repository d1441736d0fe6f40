"""The server with the domain `c` on a slow disk: each read of it takes 200 ms, as the faults of mapped pages do."""

from __future__ import annotations

import time
from typing import Any

from headrace.client.cli.main import run
from headrace.server.corpus.manifest import Corpus

SECONDS = 0.2
_read = Corpus.read


def slowly(self: Corpus, seq_len: int, packing: str, names: Any, domains: Any, windows: Any, mask: Any = None) -> Any:
    if any(names[int(domain)] == "c" for domain in set(domains.tolist())):
        time.sleep(SECONDS)
    return _read(self, seq_len, packing, names, domains, windows, mask)


if __name__ == "__main__":
    Corpus.read = slowly  # type: ignore[method-assign]
    run()
