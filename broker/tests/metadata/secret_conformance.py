"""The behaviour of every store of secrets. The test class of a store has the fixture `open_secrets`.

The fixture opens another client of the same store, as another broker would.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from barnabas_broker.metadata.store.metadata_store import Secrets, SecretStore

OpenSecrets = Callable[[], Awaitable[SecretStore]]
WAIT_S = 30
MANY = 40


async def until(changes: AsyncIterator[Secrets], secrets: Secrets) -> None:
    """Wait until the last change of each of these secrets has its value."""
    last: dict[str, bytes | None] = {}
    async with asyncio.timeout(WAIT_S):
        while any(key not in last or last[key] != value for key, value in secrets.items()):
            last.update(await anext(changes))


class SecretConformance:
    async def test_a_secret_is_read_as_written_until_it_is_deleted(self, open_secrets: OpenSecrets) -> None:
        mine, other = await open_secrets(), await open_secrets()
        stored = {f"scram/SCRAM-SHA-512/us/er, {number} \n\u00e9": b'"%d"' % number for number in range(MANY)}
        await mine.write(stored)
        await mine.write({"scram/a": b'"1"', "scram/b": b'"2"'})
        assert await other.read() == {**stored, "scram/a": b'"1"', "scram/b": b'"2"'}
        await other.write({"scram/a": None, "scram/b": b'"3"', "scram/never": None})
        assert await mine.read() == {**stored, "scram/b": b'"3"'}

    async def test_the_first_client_that_creates_a_secret_sets_its_value(self, open_secrets: OpenSecrets) -> None:
        stores = [await open_secrets() for _ in range(3)]
        created = await asyncio.gather(*(each.create("secret", b'"%d"' % n) for n, each in enumerate(stores)))
        assert set(created) == {(await stores[0].read())["secret"]}
        assert await stores[1].create("secret", b'"later"') == created[0]

    async def test_every_change_and_deletion_is_reported_to_other_brokers(self, open_secrets: OpenSecrets) -> None:
        mine, other = await open_secrets(), await open_secrets()
        assert await other.read() == {}
        await mine.write({"scram/early": b'"0"'})
        following = other.follow()
        await until(following, {"scram/early": b'"0"'})
        many: Secrets = {f"scram/{number}": b'"%d"' % number for number in range(MANY)}
        await mine.write(many)
        await until(following, many)
        await mine.write({"scram/1": b'"changed"', "scram/2": None})
        await until(following, {"scram/1": b'"changed"', "scram/2": None})

    async def test_a_read_of_some_secrets_is_current_and_hides_no_change_from_those_who_follow(
        self, open_secrets: OpenSecrets
    ) -> None:
        mine, other = await open_secrets(), await open_secrets()
        await mine.write({"scram/a": b'"1"', "scram/b": b'"2"'})
        await other.read()
        await mine.write({"scram/a": b'"3"', "scram/b": None})
        assert await other.get(["scram/a", "scram/b", "scram/never"]) == {"scram/a": b'"3"'}
        assert await other.get([]) == {}
        await until(other.follow(), {"scram/a": b'"3"', "scram/b": None})

    async def test_following_ends_when_the_store_is_closed(self, open_secrets: OpenSecrets) -> None:
        store = await open_secrets()
        await store.create("secret", b'"1"')
        following = store.follow()
        await until(following, {"secret": b'"1"'})
        ending = asyncio.ensure_future(anext(following, None))
        await store.close()
        async with asyncio.timeout(WAIT_S):
            assert await ending is None
