"""TLS of the server: certificates are read again when their files change, and so are renewed without a restart.

TLS protects the metrics page too: it is served over HTTPS with the same certificate.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import grpc
from headrace.proto.errors import ConfigError
from headrace.server.service.config import TlsConfig
from headrace.server.service.logs import remedy_of, told

logger = logging.getLogger("headrace.server")


class Certificates:
    """The PEM files of a configuration, with the moment at which they last changed."""

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._seen = self._moment()

    def read(self) -> grpc.ServerCertificateConfiguration:
        """What the files hold now; raises ConfigError naming the file that cannot be read."""
        ca = self._config.client_ca
        _check_pair(self._config)
        chain = [(_pem(self._config.key, "PRIVATE KEY"), _pem(self._config.certificate, "CERTIFICATE"))]
        return grpc.ssl_server_certificate_configuration(chain, _pem(ca, "CERTIFICATE") if ca else None)

    def renewed(self) -> Any:
        """New contents, or None when nothing has changed; asked by gRPC before each handshake."""
        try:
            moment = self._moment()
            if moment == self._seen:
                return None
            made = self.read()
        except (ConfigError, OSError) as error:
            fields = told("certificate-bad", remedy=remedy_of(error))
            logger.error("the certificates stay as they were: %s", error, extra=fields)
            return None
        self._seen = moment
        logger.info("certificates were read again", extra=told("certificate-renewed"))
        return made

    def _moment(self) -> tuple[int, ...]:
        files = (self._config.certificate, self._config.key, self._config.client_ca)
        try:
            return tuple(file.stat().st_mtime_ns for file in files if file)
        except OSError as error:
            raise ConfigError(f"cannot read {error.filename}: {error.strerror}; check [tls]") from None


def server_credentials(config: TlsConfig) -> grpc.ServerCredentials:
    """Credentials that follow the files; clients must show a certificate when `client_ca` is given."""
    certificates = Certificates(config)
    return grpc.dynamic_ssl_server_credentials(
        certificates.read(), certificates.renewed, require_client_authentication=config.client_ca is not None
    )


def _check_pair(config: TlsConfig) -> None:
    """Refuses a key that is not the certificate's: gRPC would take no port with it, and say that the port is in use."""
    for path, kind in ((config.certificate, "CERTIFICATE"), (config.key, "PRIVATE KEY")):
        _pem(path, kind)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.certificate, config.key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise ConfigError(
            f"{config.certificate} and {config.key} do not go together ({reason}); check [tls]: the key must be the "
            f"certificate's own, without a password"
        ) from None


def _pem(path: Path, kind: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check [tls]") from None
    if kind.encode() not in content:
        raise ConfigError(f"{path} holds no PEM {kind.lower()}; check [tls]")
    return content
