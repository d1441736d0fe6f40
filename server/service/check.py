"""What can be told of a SERVER.toml before a server starts: its ports, and everything that it names.

`headrace serve` looks at the ports before it touches the store, so that a second server on one address leaves nothing
behind. `headrace serve --check` opens the rest too: certificates, tokens, the store if there is one, each run with its
corpus. Nothing is made, changed or built, and one thing that is wrong does not keep the others from being looked at.
Beside a running server it is no mistake that the port is taken: the one that has the store open listens there.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from headrace.proto.errors import ConfigError, ConflictError, HeadraceError, NotFoundError
from headrace.server.control.database import parse_url
from headrace.server.control.lock import holder_of
from headrace.server.control.store import Store
from headrace.server.corpus.build import plan_build
from headrace.server.corpus.manifest import Corpus
from headrace.server.plan.spec import RunSpec
from headrace.server.service.auth import TokenFile, parse_scope
from headrace.server.service.building import missing_corpus
from headrace.server.service.certificate import not_after
from headrace.server.service.config import ServerConfig, TlsConfig
from headrace.server.service.loading import Corpora, corpus_path, new_run
from headrace.server.service.tls import server_credentials


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What was found good, in words, or the error that would keep a server from starting."""

    text: str = ""
    error: HeadraceError | None = None


def check_ports(config: ServerConfig) -> None:
    """Raises ConfigError naming an address that cannot be listened on."""
    for name, address in _addresses(config).items():
        if (refusal := _refusal(address)) is not None:
            raise _cannot_listen(config, name, address, refusal)


def _addresses(config: ServerConfig) -> dict[str, str]:
    """The addresses to listen on by key; one with port 0 is always free."""
    named = {"listen": config.listen, "metrics": config.metrics or ""}
    return {name: address for name, address in named.items() if int(address.rpartition(":")[2] or 0)}


def _refusal(address: str) -> OSError | None:
    """What keeps this process from listening on an address."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, number, _, where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, number) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            probe.listen(1)
    except OSError as error:
        return error
    return None


def _cannot_listen(config: ServerConfig, name: str, address: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"{config.place}: {name}: cannot listen on {address}: {error.strerror or error}: the address is in use, or is "
        f"not this machine's; stop the other server or choose another address"
    )


def check_config(config: ServerConfig) -> Iterator[Finding]:
    """A finding for each thing that the file names."""
    for name, address in _addresses(config).items():
        yield _found(partial(_port, config, name, address))
    if (tls := config.tls) is not None:
        yield _found(partial(_certificate, tls))
    if (tokens := config.tokens) is not None:
        yield _found(partial(_tokens, tokens))
    if config.identities:
        yield _found(partial(_identities, config.place, config.identities))
    known: dict[str, bytes] = {}
    yield _found(partial(_store, config, known))
    for path in config.runs:
        yield _found(partial(_run, config, path, known))


def _found(look: Callable[[], str]) -> Finding:
    try:
        return Finding(text=look())
    except HeadraceError as error:
        return Finding(error=error)


def _certificate(config: TlsConfig) -> str:
    server_credentials(config)
    ends = not_after(config.certificate.read_text(encoding="utf-8"))
    if ends < datetime.now(UTC):
        raise ConfigError(f"{config.certificate} ended at {ends:%Y-%m-%d %H:%M} UTC; renew it")
    return f"tls: {config.certificate} and its key go together, until {ends:%Y-%m-%d %H:%M} UTC"


def _tokens(path: Path) -> str:
    TokenFile(path)
    return f"tokens: {path} can be read"


def _identities(place: str, identities: Mapping[str, str]) -> str:
    for name, scope in identities.items():
        parse_scope(scope, f"{place}: identity `{name}`")
    return f"identities: {', '.join(identities)}"


def _port(config: ServerConfig, name: str, address: str) -> str:
    refusal = _refusal(address)
    if refusal is None:
        return f"{name}: {address} is free"
    url = parse_url(config.store)
    shared = not url.drivername.startswith("sqlite")
    holder = "" if shared else holder_of(Path(url.database or ""))
    if refusal.errno != errno.EADDRINUSE or not (shared or holder):
        raise _cannot_listen(config, name, address, refusal)
    whose = f"by the server that has this store open ({holder})" if holder else "by this file's own server, if it runs"
    return f"{name}: {address} is in use, {whose}: stop that one before another starts"


def _store(config: ServerConfig, known: dict[str, bytes]) -> str:
    """What to say of the store; the spec digest of each of its runs goes into `known`."""
    parsed = parse_url(config.store)
    try:
        store = Store(config.store, writable=False)
    except NotFoundError:
        folder = Path(parsed.database or "").parent
        if parsed.drivername.startswith("sqlite") and not folder.is_dir():
            raise NotFoundError(f"store `{config.store}`: there is no folder {folder}; make it first") from None
        return f"store: {config.store} is not there yet and will be made"
    known |= {run.name: run.spec_digest for run in store.runs()}
    store.close()
    names = f": {', '.join(list(known)[:8])}" if known else ""
    return f"store: {store.name} holds {len(known)} run{'' if len(known) == 1 else 's'}{names}"


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
