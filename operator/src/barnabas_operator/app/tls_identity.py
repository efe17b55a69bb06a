"""TLS credentials with a certificate that is in no file."""

import os
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas_operator.reconcile.worker_environment import Identity


class TlsIdentity(NamedTuple):
    """The credentials of a client: a certificate, and the trusted authorities."""

    context: ssl.SSLContext

    @property
    def authenticates(self) -> bool:
        """True, because the client has a certificate."""
        return True

    def settings(self) -> Mapping[str, Any]:
        """Return the settings of a client that connects now."""
        return {"security_protocol": "SSL", "ssl_context": self.context}


def tls_identity(identity: Identity) -> TlsIdentity:
    """Return credentials of these PEM texts. Raises ValueError."""
    file = os.memfd_create("identity")  # OpenSSL reads keys only from files.
    try:
        os.write(file, (identity.key + identity.certificate).encode())
        context = ssl.create_default_context(cadata=identity.authorities)
        context.load_cert_chain(f"/proc/self/fd/{file}", password="")
    except ssl.SSLError as error:
        raise ValueError(str(error)) from error
    finally:
        os.close(file)
    return TlsIdentity(context)
