"""Our own commands with `--command-config`, on a broker whose client listener requires SASL_SSL."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from barnabas_operator.app import abort_transaction, accept_loss, status
from harness.barnabas_server import prepare_barnabas
from harness.certificates import Authority
from harness.server_process import free_port

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], list[str], int, str]] = {
    "status": (status.main, [], 0, "no topics"),
    "accept-loss": (accept_loss.main, ["--all"], 0, "nothing to accept"),
    "abort-transaction": (
        abort_transaction.main,
        ["--topic=t", "--partition=0", "--producer-id=1"],
        1,
        "t-0: the brokers refused to abort the transaction",
    ),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[str]:
    port = free_port()
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.clients.ssl.keystore.type": "PEM",
        "listener.name.clients.ssl.keystore.location": str(authority.issue("broker").file),
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} required user_alice="geheim";',
    }
    server = prepare_barnabas(tmp_path_factory.mktemp("broker"), properties)
    server.command += ["--override", f"listeners=PLAINTEXT://127.0.0.1:{server.port},CLIENTS://127.0.0.1:{port}"]
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop()


def options(folder: Path, address: str, authority: Authority, password: str) -> list[str]:
    (file := folder / "client.properties").write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required \\\n  username="alice" password="{password}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
    )
    return ["--bootstrap", address, "--command-config", str(file)]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_authenticates_with_its_properties_and_fails_with_a_wrong_password(
    name: str, tmp_path: Path, address: str, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    main, arguments, code, text = COMMANDS[name]
    assert main([*options(tmp_path, address, authority, "geheim"), *arguments]) == code
    assert text in capsys.readouterr().out
    assert main([*options(tmp_path, address, authority, "wrong"), *arguments]) == 1
    refused = " ".join(capsys.readouterr().out.split())
    assert "the user or its password may be wrong" in refused
