"""The TLS and SASL settings of a client's connections, in the form of kafka-python."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class SecurityFileError(Exception):
    """The error that a file with a password, keys or settings cannot be used; the message has the reason."""


class Credentials(Protocol):
    """The security of a client's connections, and its identity."""

    @property
    def authenticates(self) -> bool:
        """True if the client authenticates, by SASL or by a certificate."""
        ...

    def settings(self) -> Mapping[str, Any]:
        """Return the current settings for a new client. Raise SecurityFileError if a file cannot be used."""
        ...


class Tls(NamedTuple):
    """The PEM files, read again for each connection; without `ca_file`, the machine's CA certificates are trusted."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


class Sasl(NamedTuple):
    """The mechanism (one of MECHANISMS), the user, and the file with the password."""

    mechanism: str
    username: str
    password_file: Path

    def password(self) -> str:
        """Return the password in the file, without the line end. Raise SecurityFileError if the file cannot be read."""
        try:
            return self.password_file.read_text(encoding="utf-8", errors="replace").rstrip("\r\n")
        except OSError as error:
            why = f"the password file {self.password_file} cannot be read: {error.strerror}"
            raise SecurityFileError(f"{why}; name a file that contains the password") from error


class Security(NamedTuple):
    """The TLS and SASL of a client; without TLS, everybody on the network can read the traffic."""

    tls: Tls | None = None
    sasl: Sasl | None = None

    @property
    def authenticates(self) -> bool:
        """True if the client authenticates, by SASL or by a certificate."""
        return self.sasl is not None or (self.tls is not None and self.tls.cert_file is not None)

    def settings(self) -> Mapping[str, Any]:
        """Return the settings for a new client. Raise SecurityFileError if the file of the password cannot be read."""
        protocol = ("SASL_" if self.sasl is not None else "") + ("SSL" if self.tls is not None else "PLAINTEXT")
        found: dict[str, Any] = {"security_protocol": protocol}
        if self.tls is not None:
            files = {
                "ssl_cafile": self.tls.ca_file,
                "ssl_certfile": self.tls.cert_file,
                "ssl_keyfile": self.tls.key_file,
            }
            found |= {name: str(file) for name, file in files.items() if file is not None}
        if self.sasl is not None:
            found["sasl_mechanism"] = self.sasl.mechanism
            found["sasl_plain_username"] = self.sasl.username
            found["sasl_plain_password"] = self.sasl.password()
        return found


def trusting(authorities: str = "") -> ssl.SSLContext:
    """Return the TLS context of a client that trusts these authorities, in PEM, or else those of the machine.

    Raises ValueError for a broken PEM.
    """
    try:
        return ssl.create_default_context(cadata=authorities or None)
    except ssl.SSLError as error:
        raise ValueError(str(error)) from error


def load_pem(context: ssl.SSLContext, pem: str, password: str = "") -> None:
    """Load a certificate and its private key, both in PEM. Raises ValueError if they are broken or do not match."""
    file = os.memfd_create("identity")  # OpenSSL reads keys only from files.
    try:
        os.write(file, pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{file}", password=password)
    except ssl.SSLError as error:
        raise ValueError(str(error)) from error
    finally:
        os.close(file)


IN_CLEAR: Final[Credentials] = Security()
