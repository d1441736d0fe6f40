"""What a failed connection means and what to do, in words: gRPC's own text names neither.

Only failures that no server of ours has answered come here; what a server says is passed on as it is. gRPC's text is
matched by the few words that its versions share; what is not known is shown as it came.
"""

from __future__ import annotations

import grpc

# The first that is found in gRPC's text decides: (any of these words, what it means and what to do).
_CAUSES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("Connection refused", "No such file or directory"),
        "nothing listens there; start the server (`headrace serve SERVER.toml`), or give the address that it prints",
    ),
    (
        ("Domain name not found", "lookup failed", "errors resolving", "DNS resolution", "Name or service not known"),
        "the host name is not known here; check its spelling and this machine's DNS",
    ),
    (
        ("WRONG_VERSION_NUMBER",),
        "the server does not speak TLS; connect without it, or set [tls] in the server's file",
    ),
    (
        ("CERTIFICATE_VERIFY_FAILED", "certificate verify failed", "Hostname Verification", "Peer name"),
        "the server's certificate is not trusted; give the authority that signed it, and the name or address that it "
        "was made for",
    ),
    (
        ("handshake failed", "Handshake failed", "CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "SSL_ERROR"),
        "the TLS handshake failed; check the authority (ca) and, where the server asks for one, this client's "
        "certificate and key",
    ),
    (
        ("http1.x server", "Expected SETTINGS frame", "http2 header with status"),
        "another kind of server answers there; give the address of `listen` in the server's file, not of `metrics` or "
        "of a web proxy",
    ),
    (
        ("No route to host", "Network is unreachable", "unreachable", "timed out", "Timeout", "handshaker shutdown"),
        "the host does not answer; check the address, the network and the firewalls between",
    ),
    (
        ("ping timeout", "eepalive watchdog", "ping_timeout"),
        "the connection went silent and was given up; check the network to the server",
    ),
    (
        ("Socket closed", "Connection reset", "Broken pipe", "connection closed", "GOAWAY", "recvmsg", "EOF"),
        "the connection was closed by the other end; the server stopped just now, or it wants TLS or a client "
        "certificate, and this client gives none",
    ),
)


NO_DETAILS = "no details"


def explained(code: grpc.StatusCode, details: str) -> str:
    """The cause and the remedy of a call that no Headrace server answered; `details` as they are when none is known."""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return (
            f"the server there does not know this call ({details or NO_DETAILS}); it is another kind of server, or "
            "older than this client"
        )
    if code is grpc.StatusCode.UNAVAILABLE:
        for words, meaning in _CAUSES:
            if any(word in details for word in words):
                return meaning
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer came in time; the server is busy or stopped, or the network to it is cut"
    return details or NO_DETAILS
