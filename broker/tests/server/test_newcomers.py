"""Who goes when too many clients have not authenticated yet."""

from collections import deque
from random import Random

from barnabas_broker.server.connection_bounds import NetworkQueue, Newcomers, network_of


def test_at_the_limit_the_oldest_client_of_the_address_with_the_most_goes() -> None:
    newcomers: Newcomers[str] = Newcomers(4)
    assert [newcomers.add(each, each[0], 0) for each in ("a1", "b1", "b2", "c1")] == [None] * 4
    assert newcomers.add("c2", "c", 0) == "b1"
    newcomers.discard("b1")
    assert newcomers.add("d1", "d", 0) == "c1"
    newcomers.discard("c1")
    assert newcomers.add("e1", "e", 0) == "a1"


def test_an_address_that_floods_shuts_out_only_itself() -> None:
    random, newcomers = Random(0), Newcomers[str](10)
    kept = deque[str](maxlen=3)
    for number in range(500):
        is_flood = random.random() < 0.98
        client = f"{'flood' if is_flood else 'honest'}-{number}"
        if not is_flood:
            if len(kept) == kept.maxlen:
                newcomers.discard(kept[0])  # It has authenticated.
            kept.append(client)
        gone = newcomers.add(client, client.partition("-")[0], number)
        if gone is not None:
            newcomers.discard(gone)
            assert gone.startswith("flood")
    assert len(newcomers) == 10
    assert all(each in newcomers for each in kept)


def test_clients_are_found_by_their_age_and_leave_nothing_behind() -> None:
    newcomers: Newcomers[int] = Newcomers(None)
    for number in range(5):
        assert newcomers.add(number, "10.0.0.1", number) is None
    newcomers.discard(0)
    newcomers.discard(0)
    assert (newcomers.oldest_since_s, list(newcomers.added_before(3))) == (1, [1, 2, 3])
    for number in range(5):
        newcomers.discard(number)
    assert (newcomers.oldest_since_s, newcomers.next_to_go(), newcomers._by_network) == (None, None, {})


def test_a_host_with_many_ipv6_addresses_counts_once() -> None:
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::2") != network_of("2001:db8:1:3::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("fe80::1%eth0") == network_of("fe80::2")


def test_networks_take_turns_with_work_and_each_is_served_in_order() -> None:
    queue: NetworkQueue[str] = NetworkQueue()
    for work in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
        queue.add(work[0], work)
    queue.discard("a", "a2")
    queue.discard("c", "c1")
    queue.discard("c", "c2")
    taken = []
    while queue:
        taken.append(queue.take())
    assert taken == ["a1", "b1", "a3", "b2", "a4"]
