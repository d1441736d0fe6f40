"""What can be told of a SERVER.toml before a server starts: its ports, and everything that it names.

`headrace serve` looks at the ports before it touches the store, so that a second server on one address leaves nothing
behind. `headrace serve --check` opens the rest too: certificates, tokens, the store if there is one, each run with its
corpus. Nothing is made, changed or built.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.proto.errors import ConfigError, ConflictError, NotFoundError
from headrace.server.control.database import parse_url
from headrace.server.control.store import Store
from headrace.server.corpus.build import plan_build
from headrace.server.corpus.manifest import Corpus
from headrace.server.plan.spec import RunSpec
from headrace.server.service.auth import TokenFile, parse_scope
from headrace.server.service.building import missing_corpus
from headrace.server.service.config import ServerConfig
from headrace.server.service.loading import Corpora, corpus_path, new_run
from headrace.server.service.tls import server_credentials


def check_ports(config: ServerConfig) -> None:
    """Raises ConfigError naming an address that cannot be listened on."""
    for name, address in (("listen", config.listen), ("metrics", config.metrics)):
        host, _, port = (address or ":0").rpartition(":")
        if int(port):
            _check_address(config.place, name, host.strip("[]"), int(port))


def _check_address(place: str, name: str, host: str, port: int) -> None:
    try:
        family, kind, number, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, number) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            probe.listen(1)
    except OSError as error:
        raise ConfigError(
            f"{place}: {name}: cannot listen on {host}:{port}: {error.strerror or error}: the address is in use, or is "
            f"not this machine's; stop the other server or choose another address"
        ) from None


def check_config(config: ServerConfig) -> Iterator[str]:
    """A line for each thing that was found good; raises HeadraceError naming the first that is not."""
    check_ports(config)
    yield f"free to listen on: {config.listen}{f' and {config.metrics}' if config.metrics else ''}"
    if config.tls is not None:
        server_credentials(config.tls)
        yield f"tls: {config.tls.certificate} and its key can be read"
    if config.tokens is not None:
        TokenFile(config.tokens)
        yield f"tokens: {config.tokens} can be read"
    for name, scope in (config.identities or {}).items():
        parse_scope(scope, f"{config.place}: identity `{name}`")
    store, known = _store(config)
    yield store
    for path in config.runs:
        yield _run(config, path, known)


def _store(config: ServerConfig) -> tuple[str, Mapping[str, bytes]]:
    """What to say of the store, and the spec digest of each of its runs."""
    parsed = parse_url(config.store)
    try:
        store = Store(config.store, writable=False)
    except NotFoundError:
        folder = Path(parsed.database or "").parent
        if parsed.drivername.startswith("sqlite") and not folder.is_dir():
            raise NotFoundError(f"store `{config.store}`: there is no folder {folder}; make it first") from None
        return f"store: {config.store} is not there yet and will be made", {}
    known = {run.name: run.spec_digest for run in store.runs()}
    store.close()
    names = f": {', '.join(list(known)[:8])}" if known else ""
    return f"store: {store.name} holds {len(known)} run{'' if len(known) == 1 else 's'}{names}", known


def _run(config: ServerConfig, path: Path, known: Mapping[str, bytes]) -> str:
    if (missing := missing_corpus(path)) is not None:
        files = len(plan_build(missing).files)  # finds them, and opens the tokenizer
        return f"run: {path}: its corpus will be built first, of {files:,} files, from {missing.place}"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check `runs` in {config.place}") from None
    folder = str(path.resolve().parent)
    corpora = Corpora()
    new = new_run(text, place=str(path), base_dir=folder, author="", corpora=corpora)
    if known.get(new.name, new.spec_digest) != new.spec_digest:
        raise ConflictError(
            f"{path}: run `{new.name}` is in the store with spec digest {known[new.name].hex()[:16]}, this file and "
            f"its corpus have {new.spec_digest.hex()[:16]}; a run's past and shape never change: put the file "
            "back, or the corpus where that has changed, or rename the run"
        )
    spec = RunSpec.from_json(new.spec_json)
    never = _never_read(spec, corpora.open(corpus_path(folder, spec)).for_kind(spec.kind))
    note = f"; it never reads {never}, which no phase gives weight" if never else ""
    return f"run: {path}: run `{new.name}`, digest {new.spec_digest.hex()[:16]}, its corpus can be read{note}"


def _never_read(spec: RunSpec, corpus: Corpus) -> str:
    """The domains of the corpus without weight in any phase, with their tokens."""
    points = [point for phase in spec.phases for point in phase.points]
    if any(not phase.points for phase in spec.phases):
        return ""
    weighted = {name for point in points for name, weight in point.weights.items() if weight > 0}
    left = [name for name in corpus.domains if name not in weighted]
    return ", ".join(f"`{name}` ({corpus.tokens(name):,} tokens)" for name in left)
