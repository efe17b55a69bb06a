"""How each client library authenticates: its settings for a `Login`, and one record written with them."""

import asyncio
import ssl
import subprocess
import time
from collections.abc import Callable
from typing import Any, Final

import aiokafka
import aiokafka.abc
import aiokafka.errors
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider  # noqa: TID251 (kafka-python asks for this class)

from drivers.interface import Message
from drivers.remote import RemoteClient, RemoteError
from drivers.secured_broker import PLAIN, TOPIC, USER, Login
from harness.deadline import PATIENCE_S

_SECURITY: Final = "org.apache.kafka.common.security."
_FATAL: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN)
REFUSALS: Final = (
    KafkaException,
    KafkaPythonError,
    aiokafka.errors.KafkaError,
    RemoteError,
    subprocess.CalledProcessError,
)
"""The errors that a client raises if it is refused."""


class _Silent:
    def log(self, *line: object) -> None:
        """Log nothing: tests want refusals."""


def _of_librdkafka(login: Login) -> dict[str, str]:
    settings = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.protocol,
        "ssl.ca.location": str(login.authority),
    }
    if login.mechanism:
        settings["sasl.mechanisms"] = login.mechanism
    if login.password and login.mechanism != "OAUTHBEARER":
        settings |= {"sasl.username": USER, "sasl.password": login.password}
    if login.certificate is not None:
        settings |= {"ssl.certificate.location": str(login.certificate), "ssl.key.location": str(login.certificate)}
    return settings


def librdkafka(login: Login) -> None:
    errors: list[KafkaError] = []
    settings: dict[str, Any] = {**_of_librdkafka(login), "error_cb": errors.append}
    if login.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (login.token.read_text(), time.time() + 60)
    producer = Producer(settings, logger=_Silent())
    producer.produce(TOPIC, b"librdkafka")
    while len(producer):
        producer.poll(0.02)
        fatal = next((each for each in errors if each.code() in _FATAL), None)
        if fatal is not None:
            producer.purge()
            raise KafkaException(fatal)


def kcat(login: Login) -> None:
    settings = [word for name, value in _of_librdkafka(login).items() for word in ("-X", f"{name}={value}")]
    _kcat(*settings, "-m", "30")


def kcat_with_an_unsigned_token(login: Login) -> None:
    settings = [word for name, value in _of_librdkafka(login).items() for word in ("-X", f"{name}={value}")]
    unsigned = ("-X", "enable.sasl.oauthbearer.unsecure.jwt=true", "-X", f"sasl.oauthbearer.config=principal={USER}")
    _kcat(*settings, *unsigned, "-m", "1")


def _kcat(*settings: str) -> None:
    subprocess.run(["kcat", "-L", *settings], check=True, capture_output=True, timeout=60)


class _KafkaPythonToken(AbstractTokenProvider):
    def __init__(self, login: Login) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._file = login.token

    def token(self) -> str:
        return self._file.read_text()


def kafka_python(login: Login, wait_s: float) -> None:
    settings: dict[str, Any] = {"bootstrap_timeout_ms": round(wait_s * 1000), "ssl_cafile": str(login.authority)}
    if login.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _KafkaPythonToken(login)
    elif login.mechanism:
        settings |= {"sasl_plain_username": USER, "sasl_plain_password": login.password}
    if login.mechanism:
        settings["sasl_mechanism"] = login.mechanism
    if login.certificate is not None:
        settings |= {"ssl_certfile": str(login.certificate), "ssl_keyfile": str(login.certificate)}
    producer = KafkaProducer(bootstrap_servers=login.bootstrap, security_protocol=login.protocol, **settings)
    try:
        producer.send(TOPIC, b"kafka-python").get(PATIENCE_S)
    finally:
        producer.close()


class _AiokafkaToken(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, login: Login) -> None:
        self._file = login.token

    async def token(self) -> str:
        return self._file.read_text()


def aio_kafka(login: Login) -> None:
    context = ssl.create_default_context(cafile=str(login.authority))
    settings: dict[str, Any] = {}
    if login.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _AiokafkaToken(login)
    elif login.mechanism:
        settings |= {"sasl_plain_username": USER, "sasl_plain_password": login.password}
    if login.mechanism:
        settings["sasl_mechanism"] = login.mechanism
    if login.certificate is not None:
        context.load_cert_chain(login.certificate)

    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=login.bootstrap, security_protocol=login.protocol, ssl_context=context, **settings
        )
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"aiokafka")
        finally:
            await producer.stop()

    asyncio.run(write())


def java_config(login: Login) -> dict[str, str]:
    """Return the properties of a Java client, for its driver or for a file."""
    config = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(login.authority),
    }
    if login.mechanism == "OAUTHBEARER":
        config |= {
            "sasl.jaas.config": f"{_SECURITY}oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{_SECURITY}oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": f"file://{login.token}",
        }
    elif login.mechanism:
        module = PLAIN if login.mechanism == "PLAIN" else f"{_SECURITY}scram.ScramLoginModule"
        config["sasl.jaas.config"] = f'{module} required username="{USER}" password="{login.password}";'
    if login.mechanism:
        config["sasl.mechanism"] = login.mechanism
    if login.certificate is not None:
        config |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(login.certificate)}
    return config


def remote_options(name: str, login: Login) -> dict[str, Any]:
    """Return the arguments that a driver in another language needs beside a request."""
    if name == "java":
        return {"config": java_config(login)}
    security = {
        "bootstrap": login.bootstrap,
        "ca": str(login.authority),
        "certificate": "" if login.certificate is None else str(login.certificate),
        "mechanism": login.mechanism,
        "user": USER,
        "password": login.password,
        "token": login.token.read_text() if login.mechanism == "OAUTHBEARER" else "",
    }
    return {"security": security}


def remote(client: RemoteClient) -> Callable[[Login], None]:
    return lambda login: client.produce(TOPIC, [Message(client.name.encode())], **remote_options(client.name, login))
