# SPDX-License-Identifier: MIT
"""What the NNRP door is told: where to listen, whom to serve, what to show. And what of it would not be safe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nnrp.addresses import NetworkUrl, NnrpUrl

if TYPE_CHECKING:
    from vllm_nnrp.certificates import Certificates


@dataclass(frozen=True, slots=True)
class NnrpSettings:
    """`required`: the process ends if one of `listen` cannot be opened; else it is tried again while the others serve.

    `token`: what a peer must show. `certificates`: for encrypted listeners.
    """

    listen: tuple[NnrpUrl, ...] = ()
    required: bool = False
    token: str | None = None
    allow_plaintext: bool = False
    certificates: Certificates | None = None

    def refuse_unsafe(self, urls: Iterable[NnrpUrl]) -> None:
        """Raise ValueError for a listener that cannot be encrypted as asked, or that others can reach unprotected."""
        for url in urls:
            if url.is_encrypted and self.certificates is None:
                raise ValueError(f"{url} needs a certificate: set VLLM_NNRP_CERT or --nnrp-cert")
            if isinstance(url, NetworkUrl) and url.scheme == "quic" and self._asks_clients:
                raise ValueError(f"{url} cannot ask clients for certificates: leave it out, or --nnrp-client-ca")
            if url.is_local:
                continue
            if self.token is None:
                raise ValueError(f"{url} can be reached from other machines: set VLLM_NNRP_TOKEN or --nnrp-token-file")
            if not (url.is_encrypted or self.allow_plaintext):
                raise ValueError(
                    f"{url} would send tokens and text unencrypted: use nnrps://, wss:// or quic://, or add "
                    "--nnrp-allow-plaintext if that is meant"
                )

    @property
    def _asks_clients(self) -> bool:
        return self.certificates is not None and self.certificates.asks_clients


def load_certificates(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Certificates | None:
    """None without files. Raises ValueError in words for the user."""
    if certificate is None:
        if key or client_ca:
            raise ValueError(f"{key or client_ca} is of no use without --nnrp-cert")
        return None
    # The package behind it takes its time to import, and most processes do without.
    from vllm_nnrp.certificates import CertificateFiles, Certificates

    return Certificates(CertificateFiles(certificate, key or certificate, client_ca))


def read_token(file: Path) -> str:
    """Raises ValueError in words for the user."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "not text"
        raise ValueError(f"--nnrp-token-file {file} cannot be read: {reason}") from exc
    if not token:
        raise ValueError(f"--nnrp-token-file {file} is empty")
    return token
