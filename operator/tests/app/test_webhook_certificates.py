"""The webhook reloads its renewed certificate; an unreadable one in the meantime does not stop it."""

import asyncio
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas_operator.app.operator_pages import reloading
from harness.deadline import PATIENCE_S
from local_kubernetes.certificates import Authority, Identity

EVERY_S = 0.005
HOST = "127.0.0.1"


def put(identity: Identity, folder: Path, *, key: Path | None = None) -> None:
    shutil.copy(identity.certificate, folder / "tls.crt")
    shutil.copy(key or identity.key, folder / "tls.key")


@asynccontextmanager
async def serving(tls: ssl.SSLContext) -> AsyncIterator[int]:
    """Yield the port of a server that closes each connection."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), HOST, 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def shown(port: int) -> str:
    """Return the certificate that the server presents, as PEM."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(HOST, port, ssl=trust)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return ssl.DER_cert_to_PEM_cert(found)


@pytest.mark.parametrize("trouble", ["the key of another", "no key", "no certificate at all"])
async def test_the_webhook_reports_an_unusable_certificate_and_takes_the_next_one(
    trouble: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, folder = Authority(tmp_path / "pki"), tmp_path / "mounted"
    old, new = (authority.issue(name, f"/CN={name}") for name in ("old", "new"))
    folder.mkdir()

    def spoil() -> None:
        put(new, folder, key=old.key if trouble == "the key of another" else None)
        if trouble == "no key":
            (folder / "tls.key").unlink()
        if trouble == "no certificate at all":
            (folder / "tls.crt").write_text("not yet")

    async def until_told(what: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while what not in caplog.text:
                await asyncio.sleep(EVERY_S)

    async def until_shown(port: int, wanted: Identity) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await shown(port) != wanted.certificate.read_text():
                await asyncio.sleep(EVERY_S)

    with caplog.at_level(logging.ERROR):
        put(old, folder)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        running = reloading(tls, folder, EVERY_S)
        await anext(running)
        async with serving(tls) as port:
            spoil()
            await until_told("keeps its old certificate")
            assert await shown(port) == old.certificate.read_text()
            put(new, folder)
            await until_shown(port, new)
        await anext(running, None)
