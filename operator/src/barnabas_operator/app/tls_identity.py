"""TLS credentials whose certificate is kept in memory, and in no file."""

import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas_kafka.security import load_pem, trusting
from barnabas_operator.reconcile.worker_environment import Identity


class TlsIdentity(NamedTuple):
    """The credentials of a client: a certificate, and the trusted authorities."""

    context: ssl.SSLContext

    @property
    def authenticates(self) -> bool:
        """True, because the client authenticates by its certificate."""
        return True

    def settings(self) -> Mapping[str, Any]:
        """Return kafka-python's settings for a connection with these credentials."""
        return {"security_protocol": "SSL", "ssl_context": self.context}


def tls_identity(identity: Identity) -> TlsIdentity:
    """Return the credentials of an identity. Raises ValueError if a PEM text is invalid."""
    context = trusting(identity.authorities)
    load_pem(context, identity.key + identity.certificate)
    return TlsIdentity(context)
