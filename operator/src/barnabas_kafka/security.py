"""How a client proves who it is, and who the brokers are: TLS and SASL, as kafka-python takes them."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class SecurityFileError(Exception):
    """A file of certificates, of a key or of a password cannot be used: says which and why."""


class Tls(NamedTuple):
    """PEM files; without `ca_file` the machine's authorities are trusted."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def context(self) -> ssl.SSLContext:
        """With what is in the files now: certificates are exchanged while a process runs. Raises SecurityFileError."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise SecurityFileError(
                f"the authorities {self.ca_file}: {error.strerror}; allowed: certificates, as PEM"
            ) from error
        if self.cert_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except OSError as error:
                files = f"the certificate {self.cert_file} and key {self.key_file}"
                raise SecurityFileError(f"{files}: {error.strerror}; allowed: both as PEM") from error
        return context


class Sasl(NamedTuple):
    """`mechanism` is one of MECHANISMS; the password is all that is in the file, without a newline at its end."""

    mechanism: str
    username: str
    password_file: Path

    def password(self) -> str:
        """Raises SecurityFileError."""
        try:
            return self.password_file.read_text(encoding="utf-8", errors="replace").rstrip("\r\n")
        except OSError as error:
            why = f"the password {self.password_file}: {error.strerror}"
            raise SecurityFileError(f"{why}; allowed: a file that has it") from error


class Security(NamedTuple):
    """Neither: anybody may read what is said."""

    tls: Tls | None = None
    sasl: Sasl | None = None

    def settings(self) -> Mapping[str, Any]:
        """Of a client that connects now. Raises SecurityFileError."""
        protocol = ("SASL_" if self.sasl is not None else "") + ("SSL" if self.tls is not None else "PLAINTEXT")
        found: dict[str, Any] = {"security_protocol": protocol}
        if self.tls is not None:
            found["ssl_context"] = self.tls.context()
        if self.sasl is not None:
            found["sasl_mechanism"] = self.sasl.mechanism
            found["sasl_plain_username"] = self.sasl.username
            found["sasl_plain_password"] = self.sasl.password()
        return found


IN_CLEAR: Final = Security()
