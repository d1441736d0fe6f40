"""Who may do what: tokens, scopes, certificates, and what is left behind when somebody is refused."""

from __future__ import annotations

import os
import queue
import re
import shutil
import ssl
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import make_authority, make_certificate
from headrace.proto.errors import AuthError, ConfigError, UnauthenticatedError, UnavailableError
from headrace.proto.v1 import data_pb2 as pb
from headrace.server.service.auth import Scope, parse_tokens, scope_of
from headrace.server.service.interceptors import is_public
from rig import Raw, ServerProcess, Trainer, headrace, serving, write_run

SECRETS = {name: f"{name}-0123456789abcdef" for name in ("read", "report", "operate", "admin")}
GOOD = {"a": 0.2, "b": 0.3, "c": 0.5}


def token_file(path: Path, secrets: dict[str, str]) -> Path:
    entries = [f'[[token]]\nname = "{n}"\nscope = "{n}"\ntoken = "{t}"\n' for n, t in secrets.items()]
    path.write_text("\n".join(entries))
    return path


@dataclass
class Guarded:
    server: ServerProcess
    tokens: Path

    def as_(self, scope: str) -> Raw:
        return Raw(self.server.address, token=SECRETS.get(scope, scope))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    tokens = token_file(folder / "tokens.toml", SECRETS)
    with serving(folder, [write_run(folder, corpus)], extra=f'[auth]\ntokens = "{tokens}"\n') as server:
        yield Guarded(server, tokens)


def test_each_scope_holds_the_lower_ones(guarded: Guarded) -> None:
    with guarded.as_("read") as read, guarded.as_("report") as report, guarded.as_("operate") as operate:
        assert read("GetRun", run="r").run.name == "r"
        read("OpenRun", run="r", mode="OPEN_MODE_OBSERVE")
        with pytest.raises(AuthError, match="scope read, training needs report"):
            Trainer(read).open()
        trainer = Trainer(report).open().take(3)
        with pytest.raises(AuthError, match="scope read, Confirm needs report"):
            read("Confirm", run_id=trainer.opened.run_id, lease=trainer.opened.lease)
        for raw in (read, report):
            with pytest.raises(AuthError, match="SetWeights needs operate"):
                raw("SetWeights", run="r", weights=GOOD)
        answer = operate("SetWeights", run="r", weights=GOOD, author="ann")
        assert answer.event.author == "ann (operate)"
        with pytest.raises(AuthError, match="CreateRun needs admin"):
            operate("CreateRun", spec_toml="")
        assert len(read("ListEvents", run="r").events) == 1


@pytest.mark.parametrize("token", ["", "wrong-0123456789abcdef", SECRETS["admin"][:-1], SECRETS["admin"] + "x"])
def test_no_token_or_a_wrong_one(guarded: Guarded, token: str) -> None:
    with Raw(guarded.server.address, token=token) as raw:
        for method in ("GetRun", "SetWeights", "OpenRun", "GetBatch", "ReportLosses", "WatchRun"):
            with pytest.raises(UnauthenticatedError):
                raw(method)


def test_refused_changes_are_noted_and_tokens_never(guarded: Guarded) -> None:
    with guarded.as_("read") as read, Raw(guarded.server.address, token="stranger-0123456789abcdef") as stranger:
        with pytest.raises(AuthError):
            read("SetWeights", run="r", weights=GOOD, reason="evil")
        with pytest.raises(UnauthenticatedError):
            stranger("CancelEvent", run="r", sequence=1)
        time.sleep(1.5)
        noted = read("ListRefusals", run="r").refusals
    assert {(one.method, one.who.split(":")[0]) for one in noted} >= {("SetWeights", "read"), ("CancelEvent", "ipv4")}
    said = guarded.server.log.read_text() + "".join(map(str, noted))
    assert not any(secret in said for secret in (*SECRETS.values(), "stranger-0123456789abcdef"))


def test_tokens_are_read_again_and_a_bad_file_changes_nothing(guarded: Guarded) -> None:
    with guarded.as_("report") as raw:
        raw("GetRun", run="r")
        guarded.tokens.write_text("[[token]]\n")
        raw("GetRun", run="r")
        token_file(guarded.tokens, {**SECRETS, "report": "another-0123456789abcdef"})
        os.utime(guarded.tokens, ns=(1, 1))
        with pytest.raises(UnauthenticatedError):
            raw("GetRun", run="r")
        token_file(guarded.tokens, SECRETS)
        os.utime(guarded.tokens, ns=(2, 2))
        raw("GetRun", run="r")


def test_probes_need_no_token(guarded: Guarded) -> None:
    from grpc_health.v1 import health_pb2

    with grpc.insecure_channel(guarded.server.address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check", response_deserializer=health_pb2.HealthCheckResponse.FromString
        )
        assert check(b"", timeout=10).status == health_pb2.HealthCheckResponse.SERVING
    assert not is_public("/headrace.v1.DataService/GetBatch")


def test_every_method_has_a_scope() -> None:
    from rig import _METHODS

    unlisted = [name for name in _METHODS if scope_of(f"/x/{name}") is Scope.ADMIN]
    assert sorted(unlisted) == ["CreateRun", "ExportRun", "ImportRun"]
    assert scope_of("/headrace.v1.ControlService/Unheard") is Scope.ADMIN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "token = 1",
        "[[token]]\nname = 'a'\nscope = 'read'\n",
        "[[token]]\nname = 'a'\nscope = 'root'\ntoken = '0123456789abcdef'\n",
        "[[token]]\nname = 'a'\nscope = 'read'\ntoken = 'short'\n",
        "[[token]]\nname = 'a'\nscope = 'read'\ntoken = '0123456789abcdef'\n" * 2,
        "secret-in-a-broken-file = ",
    ],
)
def test_bad_token_files(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^tokens") as caught:
        parse_tokens(text, "tokens.toml")
    assert "0123456789abcdef" not in str(caught.value)
    assert "secret-in" not in str(caught.value)


@dataclass
class Pki:
    folder: Path
    authority: Path
    stranger: Path

    def credentials(self, name: str = "", *, authority: Path | None = None) -> grpc.ChannelCredentials:
        ca = (authority or self.authority).read_bytes()
        if not name:
            return grpc.ssl_channel_credentials(ca)
        key, chain = (self.folder / f"{name}.{kind}" for kind in ("key", "pem"))
        return grpc.ssl_channel_credentials(ca, key.read_bytes(), chain.read_bytes())


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not on this machine")
    folder = tmp_path_factory.mktemp("pki")
    authority, stranger = make_authority(folder, "authority"), make_authority(folder, "stranger")
    make_certificate(folder, authority, "server", "IP:127.0.0.1,DNS:localhost")
    make_certificate(folder, authority, "trainer", "URI:spiffe://cluster/trainer")
    make_certificate(folder, authority, "guest", "DNS:guest")
    make_certificate(folder, stranger, "outsider", "URI:spiffe://cluster/trainer")
    return Pki(folder, authority, stranger)


def test_mutual_tls(pki: Pki, tmp_path: Path, corpus: Path) -> None:
    extra = (
        f'[tls]\ncertificate = "{pki.folder}/server.pem"\nkey = "{pki.folder}/server.key"\n'
        f'client_ca = "{pki.authority}"\n[auth.identities]\n"spiffe://cluster/trainer" = "report"\n'
    )
    with serving(tmp_path, [write_run(tmp_path, corpus)], extra=extra) as server:
        with Raw(server.address, credentials=pki.credentials("trainer")) as raw:
            Trainer(raw).open().take(3)
            with pytest.raises(AuthError, match=r"`spiffe://cluster/trainer` has scope report"):
                raw("SetWeights", run="r", weights=GOOD)
        with Raw(server.address, credentials=pki.credentials("guest")) as raw, pytest.raises(UnauthenticatedError):
            raw("GetRun", run="r")
        for credentials in (pki.credentials(), pki.credentials("outsider"), None):
            with Raw(server.address, credentials=credentials) as raw, pytest.raises(UnavailableError):
                raw("GetRun", run="r", timeout=3)
        context = ssl.create_default_context(cafile=str(pki.authority))
        context.load_cert_chain(pki.folder / "trainer.pem", pki.folder / "trainer.key")
        page = urllib.request.urlopen(f"https://127.0.0.1:{server.metrics_port}/metrics", context=context, timeout=10)
        assert b"headrace_seal_step" in page.read()


def test_commands_speak_tls_and_show_tokens(pki: Pki, tmp_path: Path, corpus: Path) -> None:
    tokens, mine = tmp_path / "tokens.toml", tmp_path / "mine.token"
    tokens.write_text('[[token]]\nname = "ann"\nscope = "operate"\ntoken = "0123456789abcdef"\n')
    mine.write_text("0123456789abcdef\n")
    extra = (
        f'[tls]\ncertificate = "{pki.folder}/server.pem"\nkey = "{pki.folder}/server.key"\n'
        f'[auth]\ntokens = "{tokens}"\n'
    )
    with serving(tmp_path, [write_run(tmp_path, corpus)], extra=extra) as server:
        access = ("--server", server.address, "--ca", str(pki.authority), "--token-file", str(mine))
        for words in (
            ("run", "list"),
            ("run", "events", "r"),
            ("run", "explain", "r", "--step", "0"),
            ("run", "digest", "r", "--steps", "0"),
            ("run", "forecast", "r"),
            ("weights", "show", "r"),
            ("weights", "set", "r", "a=1", "b=1", "c=1"),
            ("weights", "history", "r"),
            ("run", "mask", "r", "c.jsonl:1", "--by", "source"),
        ):
            done = headrace(*words, *access)
            assert done.returncode == 0, (words, done.stderr)
        assert "ann" in headrace("run", "events", "r", *access).stdout
        without = headrace("run", "list", *access[:4])
        assert (without.returncode, "wants a bearer token" in without.stderr) == (1, True)
        plain = headrace("run", "list", "--server", server.address)
        assert plain.returncode == 75
        assert "it wants TLS or a client certificate, and this client gives none" in plain.stderr
        (tmp_path / "headrace.toml").write_text(
            f'server = "{server.address}"\nca = "{pki.authority}"\ntoken_file = "mine.token"\n'
        )
        assert headrace("run", "list", cwd=tmp_path).returncode == 0
        assert (
            headrace("top", "--once", cwd=tmp_path).returncode == 75
        )  # it names no page, and nothing is at the default
        with (tmp_path / "headrace.toml").open("a") as file:
            file.write(f'page = "https://127.0.0.1:{server.metrics_port}"\n')
        assert "r  step 0 of" in headrace("top", "--once", cwd=tmp_path).stdout
        far = headrace("run", "list", "--server", "10.0.0.1:7750", "--token-file", str(mine))
        assert "a token is sent only over TLS" in far.stderr


def test_tls_for_the_server_alone_and_a_certificate_that_is_renewed(pki: Pki, tmp_path: Path, corpus: Path) -> None:
    for kind in ("pem", "key"):
        shutil.copy(pki.folder / f"server.{kind}", tmp_path / f"mine.{kind}")
    extra = '[tls]\ncertificate = "mine.pem"\nkey = "mine.key"\n'
    with serving(tmp_path, [write_run(tmp_path, corpus)], extra=extra) as server:
        with Raw(server.address, credentials=pki.credentials()) as raw:
            assert raw("GetRun", run="r").run.name == "r"
        wrong = pki.credentials(authority=pki.stranger)
        with Raw(server.address, credentials=wrong) as raw, pytest.raises(UnavailableError):
            raw("GetRun", run="r", timeout=3)
        newer = tmp_path / "newer"
        newer.mkdir()
        certificate, key = make_certificate(newer, pki.stranger, "mine", "IP:127.0.0.1")
        shutil.copy(certificate, tmp_path / "mine.pem")  # the key comes a moment later
        with Raw(server.address, credentials=pki.credentials()) as raw:
            assert raw("GetRun", run="r").run.name == "r"
        assert "the certificates stay as they were" in server.log.read_text()
        check = headrace("serve", "--check", str(tmp_path / "SERVER.toml"))
        assert check.returncode == 2
        assert "mine.key do not go together (KEY_VALUES_MISMATCH); check [tls]" in check.stderr
        assert "Traceback" not in check.stderr
        shutil.copy(key, tmp_path / "mine.key")
        with Raw(server.address, credentials=wrong) as raw:
            assert raw("GetRun", run="r").run.name == "r"
        good = headrace("serve", "--check", str(tmp_path / "SERVER.toml"))
        assert re.search(r"mine.pem and its key go together, until \d{4}-\d\d-\d\d \d\d:\d\d UTC", good.stdout)


class Streaming:
    """A StreamBatches call that reads step 0 of run `r` over and over."""

    def __init__(self, channel: grpc.Channel, run_id: str, *, token: str = "") -> None:
        self._requests: queue.SimpleQueue[pb.StreamBatchesRequest | None] = queue.SimpleQueue()
        method: Any = channel.stream_stream(
            "/headrace.v1.DataService/StreamBatches", pb.StreamBatchesRequest.SerializeToString
        )
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.call = method(iter(self._requests.get, None), timeout=30, metadata=metadata)
        self._run_id = run_id

    def read(self) -> None:
        self._requests.put(
            pb.StreamBatchesRequest(run_id=self._run_id, ranges=[pb.RowRange(step=0, first_slot=0, rows=1)])
        )
        assert pb.GetBatchResponse.FromString(next(self.call)).batch.step == 0

    def read_until_refused(self, seconds: float) -> grpc.RpcError:
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                self.read()
                time.sleep(0.1)
        except grpc.RpcError as error:
            return error
        finally:
            self._requests.put(None)
        raise AssertionError(f"still served after {seconds} s")


def test_a_token_that_is_revoked_ends_the_stream_that_it_opened(guarded: Guarded) -> None:
    with guarded.as_("report") as raw:
        trainer = Trainer(raw, job="another").open(takeover=True).take(1)
        trainer.close()
    with grpc.insecure_channel(guarded.server.address) as channel:
        going = Streaming(channel, trainer.opened.run_id, token=SECRETS["read"])
        kept = Streaming(channel, trainer.opened.run_id, token=SECRETS["report"])
        going.read()
        kept.read()
        token_file(guarded.tokens, {name: token for name, token in SECRETS.items() if name != "read"})
        os.utime(guarded.tokens, ns=(3, 3))
        try:
            error: Any = going.read_until_refused(10)
            time.sleep(1.1)
            kept.read()
            kept.read()
        finally:
            token_file(guarded.tokens, SECRETS)
            os.utime(guarded.tokens, ns=(4, 4))
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "the token is not known" in error.details()
    assert SECRETS["read"] not in guarded.server.log.read_text()


def test_a_certificate_that_ends_ends_the_stream_and_the_calls_of_its_connection(
    pki: Pki, tmp_path: Path, corpus: Path
) -> None:
    extra = (
        f'[tls]\ncertificate = "{pki.folder}/server.pem"\nkey = "{pki.folder}/server.key"\n'
        f'client_ca = "{pki.authority}"\n[auth.identities]\nguest = "report"\nbrief = "report"\n'
    )
    with serving(tmp_path, [write_run(tmp_path, corpus)], extra=extra) as server:
        with Raw(server.address, credentials=pki.credentials("guest")) as raw:
            run_id = Trainer(raw).open().take(1).opened.run_id
        ends = (datetime.now(UTC) + timedelta(seconds=5)).replace(microsecond=0)  # certificates know whole seconds
        make_certificate(pki.folder, pki.authority, "brief", "DNS:brief", ends=ends)
        with grpc.secure_channel(server.address, pki.credentials("brief")) as channel:
            stream = Streaming(channel, run_id)
            stream.read()
            error: Any = stream.read_until_refused(15)
            get_run = channel.unary_unary("/headrace.v1.ControlService/GetRun")
            with pytest.raises(grpc.RpcError) as call:  # over the connection that there is
                get_run(b"", timeout=5)
        assert datetime.now(UTC) >= ends
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "certificate has ended at" in error.details()
        late: Any = call.value
        assert late.code() is grpc.StatusCode.UNAUTHENTICATED
        with Raw(server.address, credentials=pki.credentials("brief")) as raw, pytest.raises(UnavailableError):
            raw("GetRun", run="r", timeout=3)  # a new connection does not come about
