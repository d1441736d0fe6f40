"""The page's address: figures as JSON and as a stream, who may ask, and what a browser may do with the answers."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from rig import Raw, ServerProcess, Trainer, headrace, serving, write_run
from tokens import SECRETS, Guarded, token_entries
from web import Web


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("page")
    with serving(folder, [write_run(folder, corpus)]) as started:
        with Raw(started.address) as raw:
            Trainer(raw).open().take(40).settle()
            raw("SetWeights", run="r", weights={"a": 0.2, "b": 0.3, "c": 0.5}, author="ann", reason="more of c")
        yield started


@pytest.fixture
def web(server: ServerProcess) -> Web:
    return Web(server.metrics_port)


def test_health_and_metrics(web: Web) -> None:
    assert (web("/healthz").status, web("/healthz").body) == (200, b"serving\n")
    plain, packed = web("/metrics"), web("/metrics", accept_encoding="gzip")
    assert b"headrace_seal_step" in plain.body
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) / 3


def test_snapshot_says_where_the_run_is(web: Web) -> None:
    assert web("/api/runs").json["runs"] == ["r"]
    shown = web("/api/runs/r").json
    run = shown["run"]
    assert (run["confirmed"], run["seal"], run["end"]) == (40, 48, 400)
    assert run["tokens"] == sum(domain["tokens"] for domain in shown["domains"])
    assert sum(domain["share"] for domain in shown["domains"]) == pytest.approx(1)
    assert {domain["name"]: domain["target"] for domain in shown["domains"]} == pytest.approx(
        {"a": 0.2, "b": 0.3, "c": 0.5}
    )
    assert {domain["name"]: domain["due"] for domain in shown["domains"]} == pytest.approx(
        {"a": 0.5, "b": 0.3, "c": 0.2}
    )
    (event,) = shown["events"]
    assert (event["author"], event["reason"], event["from_step"], event["holds"]) == ("ann", "more of c", 48, False)
    assert event["changes"][0] in (["a", 0.5, pytest.approx(0.2)], ["c", 0.2, pytest.approx(0.5)])
    assert shown["lease"]["ranks"][0]["label"] == "0"
    assert web("/api/runs/r/log").json["events"] == shown["events"]
    assert web("/api/runs/r/log?before=1").json["events"] == []


def test_history_of_the_domains_that_are_named(web: Web) -> None:
    found = web("/api/runs/r/history?domain=a&domain=c&domain=nobody").json
    assert found["steps"] == list(range(1, 41))
    assert sorted(found["domains"]) == ["a", "c"]
    assert found["domains"]["a"]["target"] == [0.5] * 40
    assert found["domains"]["a"]["share_so_far"][-1] == pytest.approx(0.5, abs=0.01)


def test_a_step_slot_by_slot_and_a_row_token_by_token(web: Web, server: ServerProcess) -> None:
    slots = web("/api/runs/r/batch").json
    assert (slots["step"], slots["sealed"], len(slots["domains"])) == (40, True, 8)
    assert web("/api/runs/r/batch?step=48").json["sealed"] is False
    with Raw(server.address) as raw:
        explained = raw("Explain", run="r", step=40, text_characters=30)
    for slot, wanted in enumerate(explained.slots):
        row = web(f"/api/runs/r/batch?slot={slot}&tokens=4096").json
        assert (row["domain"], row["window"], row["digest"]) == (wanted.domain, wanted.window, wanted.row_digest.hex())
        text = "".join(piece[0] for piece in row["pieces"])
        assert text.startswith(wanted.text)
        assert sum(piece[1] for piece in row["pieces"]) == row["real"]
        assert sum(piece[2] for piece in row["pieces"]) in (row["documents"], row["documents"] - 1)
        assert [(s["file"], s["row"]) for s in row["sources"]] == [(s.file, s.row) for s in wanted.sources]


def test_stream_sends_a_snapshot_and_then_what_has_changed(web: Web, server: ServerProcess) -> None:
    ((event, first),) = web.messages("/api/runs/r/stream", 1)
    assert event == "snapshot"
    with Raw(server.address) as raw:
        trainer = Trainer(raw, attempt=first["lease"]["attempt"] + 1)
        trainer.open().take(3)
        later = web.messages("/api/runs/r/stream", 2)
    assert later[-1][0] == "snapshot"
    assert later[-1][1]["lease"]["attempt"] == trainer.attempt


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/runs/nobody", 404, "there is no run `nobody`"),
        ("/api/runs/r/batch?step=400", 404, "has steps 0 to 399"),
        ("/api/runs/r/batch?slot=8", 400, "slots 0 to 7"),
        ("/api/runs/r/batch?step=-1", 400, "whole number"),
        ("/api/runs/r/batch?step=1e3", 400, "whole number"),
        ("/api/runs/r/log?before=99999999999999999999", 400, "whole number"),
        ("/api/runs/r/history?" + "&".join(f"domain=d{n}" for n in range(33)), 400, "at most 32"),
        ("/static/../http.py", 404, ""),
        ("/static/%2e%2e/http.py", 404, ""),
        ("/static/index.html", 404, ""),
        ("/nothing", 404, ""),
    ],
)
def test_what_is_asked_wrongly_is_told_and_shows_no_traceback(web: Web, path: str, status: int, said: str) -> None:
    got = web(path)
    assert got.status == status
    assert said in got.body.decode()
    assert b"Traceback" not in got.body


def test_every_answer_is_strict_with_browsers(web: Web) -> None:
    for path in ("/", "/login", "/static/page.css", "/api/runs", "/metrics", "/nothing", "/api/runs/nobody"):
        headers = web(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]:80"])
def test_another_name_for_this_machine_is_turned_away(web: Web, host: str) -> None:
    assert web("/api/runs", host=host).status == 421
    for known in ("localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:7751"):
        assert web("/api/runs", host=known).status == 200


def test_files_are_sent_once(web: Web) -> None:
    first = web("/static/page.css", accept_encoding="gzip")
    assert first.headers["content-encoding"] == "gzip"
    assert web("/static/page.css", if_none_match=first.headers["etag"]).status == 304


def test_page_has_nothing_inline_and_only_files_of_its_own() -> None:
    static = Path(str(files("headrace.server.watch"))) / "static"
    for page in static.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"\sstyle=|\son\w+=|<style|javascript:|https?://", text)
        assert not re.search(r"<script(?![^>]*\ssrc=)", text)
        for path in re.findall(r'(?:src|href)="/static/([^"]+)"', text):
            assert (static / path).is_file(), path


def test_a_token_is_wanted_for_everything_but_the_health(guarded: Guarded) -> None:
    web = Web(guarded.server.metrics_port)
    assert web("/healthz").status == 200
    assert web("/static/page.css").status == 200
    assert (web("/").status, web("/").headers["location"]) == (303, "/login")
    for path in ("/metrics", "/api/runs", "/api/runs/r", "/api/runs/r/stream", "/api/runs/r/batch?slot=0"):
        for wrong in ("", "Bearer wrong-0123456789abcdef", f"Basic {SECRETS['read']}", f"Bearer {SECRETS['read']}x"):
            got = web(path, **({"authorization": wrong} if wrong else {}))
            assert got.status == 401
            assert got.headers["www-authenticate"].startswith("Bearer")
        assert path.endswith("stream") or web(path, authorization=f"Bearer {SECRETS['read']}").status == 200


def log_in(web: Web, token: str) -> str:
    got = web("/login", method="POST", body=f"token={token}", content_type="application/x-www-form-urlencoded")
    assert got.status == 303, got.body
    cookie = got.headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
        assert word in cookie
    assert token not in cookie
    return cookie.partition(";")[0]


def test_a_browser_logs_in_and_out(guarded: Guarded) -> None:
    server = guarded.server
    web = Web(server.metrics_port)
    began = time.monotonic()
    wrong = web("/login", method="POST", body="token=wrong-0123456789abcdef")
    assert wrong.status == 401
    assert time.monotonic() - began > 0.9
    assert b'role="alert"' in wrong.body
    cookie = log_in(web, SECRETS["read"])
    assert web("/", cookie=cookie).status == 200
    assert web("/api/runs", cookie=cookie).json["logged_in"] is True
    assert web("/login", cookie=cookie).headers["location"] == "/"
    assert web("/api/runs", cookie=cookie + "x").status == 401
    assert web("/logout", method="POST", cookie=cookie, origin="http://evil.example").status == 403
    assert web("/logout", method="POST", cookie=cookie).status == 303
    assert web("/api/runs", cookie=cookie).status == 401
    assert not any(secret in server.log.read_text() for secret in (*SECRETS.values(), "wrong-0123456789abcdef"))


def test_a_token_that_is_taken_back_ends_its_sessions_and_streams(guarded: Guarded) -> None:
    server, tokens = guarded.server, guarded.tokens
    web = Web(server.metrics_port)
    cookie = log_in(web, SECRETS["report"])
    assert web("/api/runs", cookie=cookie).status == 200
    guarded.write({"read": SECRETS["read"]})
    os.utime(tokens, ns=(1, 1))
    assert web("/api/runs", cookie=cookie).status == 401
    guarded.write(SECRETS)
    os.utime(tokens, ns=(2, 2))


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"origin": "http://evil.example"}, "token=x", 403),
        ({"sec_fetch_site": "cross-site"}, "token=x", 403),
        ({}, "token=" + "x" * 5000, 400),
        ({}, "&".join("a=b" for _ in range(50)), 400),
        ({}, "\xff", 400),
    ],
)
def test_odd_forms_are_refused(guarded: Guarded, headers: dict[str, str], body: str, status: int) -> None:
    assert Web(guarded.server.metrics_port)("/login", method="POST", body=body, **headers).status == status


def test_certificates_are_wanted_where_the_server_has_an_authority(tmp_path: Path, corpus: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not on this machine")
    from certificates import make_authority, make_certificate

    authority = make_authority(tmp_path, "authority")
    make_certificate(tmp_path, authority, "server", "IP:127.0.0.1")
    make_certificate(tmp_path, authority, "scraper", "URI:spiffe://cluster/prometheus")
    make_certificate(tmp_path, authority, "guest", "DNS:guest")
    extra = (
        '[tls]\ncertificate = "server.pem"\nkey = "server.key"\nclient_ca = "authority.pem"\n'
        '[auth.identities]\n"spiffe://cluster/prometheus" = "read"\n'
    )
    with serving(tmp_path, [write_run(tmp_path, corpus)], extra=extra) as server:
        statuses = {}
        for name in ("", "guest", "scraper"):
            context = ssl.create_default_context(cafile=str(authority))
            if name:
                context.load_cert_chain(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
            web = Web(server.metrics_port, tls=context)
            statuses[name] = [web(path).status for path in ("/healthz", "/metrics", "/api/runs", "/")]
    assert statuses == {"": [200, 401, 401, 303], "guest": [200, 401, 401, 303], "scraper": [200, 200, 200, 200]}


def test_metrics_may_be_opened_and_cookies_are_secure_over_tls(tmp_path: Path, corpus: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not on this machine")
    from certificates import make_authority, make_certificate

    authority = make_authority(tmp_path, "authority")
    make_certificate(tmp_path, authority, "server", "IP:127.0.0.1")
    (tmp_path / "tokens.toml").write_text(token_entries(SECRETS))
    extra = (
        '[tls]\ncertificate = "server.pem"\nkey = "server.key"\n[auth]\ntokens = "tokens.toml"\nopen_metrics = true\n'
    )
    with serving(tmp_path, [write_run(tmp_path, corpus)], extra=extra) as server:
        web = Web(server.metrics_port, tls=ssl.create_default_context(cafile=str(authority)))
        assert (web("/metrics").status, web("/api/runs").status) == (200, 401)
        cookie = web("/login", method="POST", body=f"token={SECRETS['read']}").headers["set-cookie"]
        assert cookie.startswith("__Host-headrace-")
        assert "Secure" in cookie
        assert web("/api/runs", cookie=cookie.partition(";")[0]).status == 200
        done = headrace(
            "top", "--endpoint", f"https://127.0.0.1:{server.metrics_port}", "--ca", str(authority), "--json"
        )
        assert (done.returncode, "wants a bearer token" in done.stderr) == (1, True)
        assert server.stop() == 0
