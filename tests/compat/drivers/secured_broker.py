"""A broker with a listener for each security protocol, and credentials that it accepts or refuses."""

from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from drivers.broker_under_test import PROPERTIES
from harness.barnabas_server import prepare_barnabas
from harness.certificates import Authority
from harness.deadline import PATIENCE_S
from harness.server_process import free_port
from harness.tokens import AUDIENCE, ISSUER, Issuer

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CERTIFICATE: Final = "certificate"
WAYS: Final = (*MECHANISMS, CERTIFICATE)
"""The ways in which a client authenticates."""
USER: Final = "alice"
PASSWORD: Final = "pencil, and =more"
TOPIC: Final = "written-by-all"
_PROTOCOLS: Final = {"MTLS": "SSL", "SASL": "SASL_SSL", "CLEAR": "SASL_PLAINTEXT"}
_TOKENS: Final = "sasl.oauthbearer."


class Login(NamedTuple):
    """The address of one listener, the authority that the client trusts, and the client's credentials."""

    bootstrap: str
    protocol: str
    authority: Path
    mechanism: str = ""
    password: str = ""
    token: Path = Path()
    """The file with the token; for OAUTHBEARER only."""
    certificate: Path | None = None
    """The file with a key and its certificate."""


def set_password(bootstrap: str, password: str, *users: str) -> None:
    """Set a password for both hashes, through the open listener."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        asked: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password.encode()) for user in users
        ]
        for done in client.alter_user_scram_credentials(asked).values():
            done.result(timeout=PATIENCE_S)


class SecuredBroker:
    """The broker; tests prepare topics and users over its open listener."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority, stranger = Authority(folder), Authority(folder, "stranger")
        self._certificates = (stranger.issue(USER, "strange").file, self._authority.issue(USER).file)
        self._ports = {name: free_port() for name in _PROTOCOLS}
        issuers = (Issuer(), Issuer())
        for name, issuer in zip(("wrong", "right"), issuers, strict=True):
            (folder / f"{name}.jwt").write_text(issuer.token(USER, valid_s=3600))
        (folder / "keys.json").write_bytes(issuers[True].key_set())
        self.server = prepare_barnabas(folder, self._settings())
        config = folder / "server.properties"
        listeners = ",".join(f"{name}://localhost:{port}" for name, port in self._ports.items())
        config.write_text(config.read_text().replace("listeners=PLAINTEXT", f"listeners={listeners},PLAINTEXT", 1))

    def _settings(self) -> dict[str, str]:
        protocols = {"PLAINTEXT": "PLAINTEXT", **_PROTOCOLS}
        settings = {
            **PROPERTIES,
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._authority.issue("broker").file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.file),
            "listener.name.mtls.ssl.client.auth": "required",
            f"{_TOKENS}jwks.endpoint.url": f"file://{self.folder}/keys.json",
            f"{_TOKENS}expected.audience": AUDIENCE,
            f"{_TOKENS}expected.issuer": ISSUER,
        }
        for name in ("sasl", "clear"):
            settings[f"listener.name.{name}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            settings[f"listener.name.{name}.plain.sasl.jaas.config"] = f'{PLAIN} required user_{USER}="{PASSWORD}";'
        return settings

    def start(self) -> None:
        """Start the broker with its users and a topic."""
        self.server.start()
        set_password(self.server.bootstrap, PASSWORD, USER, "carol")
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(PATIENCE_S)

    def bootstrap(self, listener: str) -> str:
        """Return the address of a listener."""
        return f"localhost:{self._ports[listener]}"

    def login(self, way: str, *, is_right: bool = True) -> Login:
        """Return a login over TLS with right credentials, or with wrong ones."""
        if way == CERTIFICATE:
            shown = self._certificates[is_right]
            return Login(self.bootstrap("MTLS"), "SSL", self._authority.file, certificate=shown)
        password, token = (PASSWORD, "right.jwt") if is_right else ("wrong", "wrong.jwt")
        return Login(self.bootstrap("SASL"), "SASL_SSL", self._authority.file, way, password, self.folder / token)

    def login_in_clear(self, password: str) -> Login:
        """Return a PLAIN login without TLS."""
        return Login(self.bootstrap("CLEAR"), "SASL_PLAINTEXT", self._authority.file, "PLAIN", password)

    @property
    def token_urls(self) -> str:
        """Return the URLs of the token files, which Java must be allowed to read."""
        return ",".join(f"file://{self.folder}/{name}.jwt" for name in ("right", "wrong"))
