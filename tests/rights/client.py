"""A connection of one user over SASL_PLAINTEXT or SASL_SSL."""

import ssl

from harness.codec_client import Connection

PASSWORD = "secret"


class Client(Connection):
    """A connection that has authenticated by PLAIN."""

    def __init__(self, port: int, user: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(port, tls)
        self.request("SaslHandshake", 1, {"mechanism": "PLAIN"})
        token = f"\0{user}\0{PASSWORD}".encode()
        answer = self.request("SaslAuthenticate", 2, {"auth_bytes": token})
        assert answer.error_code == 0, answer
