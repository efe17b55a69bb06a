"""A client that floods a port ends its own connections, and delays others by one piece of work."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_web.visitors import CONNECTION_BYTES, RATES_KEPT, Limits, Turns, Visitors, address_of

FOUR = Limits(4 * CONNECTION_BYTES, rate=8)
STEPS = st.lists(
    st.tuples(st.sampled_from(["hold", "leave"]), st.integers(0, 20), st.sampled_from("abcd"), st.integers(1, 3))
)


def test_a_flood_ends_the_oldest_connection_of_its_own_address() -> None:
    visitors: Visitors[str] = Visitors(FOUR)
    assert visitors.hold("probe", "node") == []
    ended = [each for number in range(100) for each in visitors.hold(f"flood-{number}", "stranger")]
    assert ended == [f"flood-{number}" for number in range(97)]
    assert "probe" in visitors


def test_a_new_address_is_let_in_when_all_places_are_taken() -> None:
    visitors: Visitors[str] = Visitors(FOUR)
    for number in range(4):
        visitors.hold(f"flood-{number}", "stranger")
    assert visitors.hold("probe", "node") == ["flood-0"]


def test_a_large_request_ends_the_connections_of_its_own_address() -> None:
    visitors: Visitors[str] = Visitors(FOUR)
    visitors.hold("probe", "node")
    visitors.hold("one", "stranger")
    visitors.hold("two", "stranger")
    assert visitors.hold("two", "stranger", 2 * CONNECTION_BYTES) == ["one"]
    assert visitors.hold("two", "stranger", 2 * CONNECTION_BYTES) == ["two"]
    assert list(visitors) == ["probe"]


@given(STEPS)
def test_connections_never_hold_more_than_the_limit(steps: list[tuple[str, int, str, int]]) -> None:
    visitors, sizes = Visitors[tuple[int, str]](FOUR), dict[tuple[int, str], int]()
    for action, number, address, size in steps:
        connection = (number, address)
        if action == "leave":
            visitors.leave(connection)
            sizes.pop(connection, None)
            continue
        sizes[connection] = sizes.get(connection, 0) + size * CONNECTION_BYTES
        for ended in visitors.hold(connection, address, size * CONNECTION_BYTES):
            of_each = {held: sum(n for (_, other), n in sizes.items() if other == held) for _, held in sizes}
            assert of_each[ended[1]] == max(of_each.values())
            del sizes[ended]
        assert set(visitors) == set(sizes)
        assert sum(sizes.values()) <= FOUR.bytes


def test_an_address_connects_as_often_as_its_rate_allows_and_delays_no_other() -> None:
    visitors: Visitors[str] = Visitors(FOUR)
    assert [visitors.may_enter("stranger", 5.0) for _ in range(30)] == [True] * 16 + [False] * 14
    assert visitors.may_enter("node", 5.0)
    assert [visitors.may_enter("stranger", 6.0) for _ in range(30)] == [True] * 8 + [False] * 22
    for number in range(RATES_KEPT):
        visitors.may_enter(str(number), 6.0)
    assert visitors.may_enter("stranger", 6.0), "its rate is forgotten, so that the memory is bounded"


async def test_addresses_take_turns() -> None:
    turns, order = Turns(), list[str]()

    async def work(address: str) -> None:
        async with turns.turn(address):
            await asyncio.sleep(0)
            order.append(address)

    await asyncio.gather(*(work("stranger") for _ in range(50)), work("node"))
    assert order.index("node") == 1


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fd00::1", "fd00::ffff:1", True),
        ("fd00::1", "fd00:0:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
    ],
)
def test_all_addresses_of_one_ipv6_prefix_are_one_client(one: str, other: str, are_equal: bool) -> None:
    assert (address_of(one) == address_of(other)) == are_equal
