"""Brokers that speak to each other by TLS with certificates of both sides, on a listener of their own."""

from harness.certificates import Authority, Identity
from harness.server_process import ServerProcess, free_port

LISTENER = "BROKERS"


def mutual_tls(identity: Identity, authority: Authority) -> dict[str, str]:
    """Return the settings of all brokers: one certificate for all, and the authority that signed it."""
    return {
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,SECURE:SSL,{LISTENER}:SSL",
        "inter.broker.listener.name": LISTENER,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity.file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        f"listener.name.{LISTENER.lower()}.ssl.client.auth": "required",
    }


def add_listener_of_brokers(broker: ServerProcess, *others: str) -> None:
    """Let a broker that is not running listen for its peers, and on these other listeners."""
    peers = f"{LISTENER}://{broker.host}:{free_port()}"
    listeners = ",".join([f"PLAINTEXT://{broker.bootstrap}", peers, *others])
    broker.command += ["--override", f"listeners={listeners}"]
