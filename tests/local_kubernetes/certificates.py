"""Certificates of a cluster that lives for a test: one authority and the certificates that it signs, by `openssl`."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

DAYS = "30"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Identity(NamedTuple):
    """The files of a certificate and its private key, in PEM."""

    certificate: Path
    key: Path


class Authority:
    """The authority of one cluster; its files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.identity = Identity(folder / "ca.crt", folder / "ca.key")
        if not self.identity.key.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._request(self.identity, "/CN=barnabas-e2e", ("basicConstraints=critical,CA:TRUE",))

    @property
    def certificate(self) -> Path:
        """Return the certificate that clients of this cluster trust."""
        return self.identity.certificate

    def issue(self, name: str, subject: str, alternative_names: Sequence[str] = ()) -> Identity:
        """Issue a certificate for servers and clients: `subject` as `/O=GROUP/CN=USER`, names as `DNS:x`."""
        identity = Identity(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        extensions = ["extendedKeyUsage=serverAuth,clientAuth", "basicConstraints=critical,CA:FALSE"]
        if alternative_names:
            extensions.append(f"subjectAltName={','.join(alternative_names)}")
        signer = ("-CA", str(self.identity.certificate), "-CAkey", str(self.identity.key))
        self._request(identity, subject, extensions, signer)
        return identity

    @staticmethod
    def _request(identity: Identity, subject: str, extensions: Sequence[str], signer: tuple[str, ...] = ()) -> None:
        added = [argument for extension in extensions for argument in ("-addext", extension)]
        files = ("-out", str(identity.certificate), "-keyout", str(identity.key))
        command = ["openssl", "req", "-x509", *KEY, *files, "-days", DAYS, "-subj", subject, *signer, *added]
        subprocess.run(command, check=True, capture_output=True)
