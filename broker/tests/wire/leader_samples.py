"""Current leaders as Produce and Fetch answer with them, and as a client reads them."""

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from barnabas_broker.wire.framing import CurrentLeader, LeaderEndpoint

ids = st.integers(0, 2**31 - 1)
hosts = st.text(min_size=1, max_size=200)
endpoint = st.builds(LeaderEndpoint, ids, hosts, st.integers(0, 65_535), st.none() | hosts)
leaders = st.none() | st.builds(CurrentLeader, ids, ids, st.none() | endpoint)


def endpoints(read: Iterable[Any] | None) -> list[LeaderEndpoint]:
    """Return the endpoints that the client has read."""
    return [LeaderEndpoint(each.node_id, each.host, each.port, each.rack) for each in read or ()]


def expected_endpoints(named: Iterable[CurrentLeader | None]) -> list[LeaderEndpoint]:
    """Return each endpoint once, in the order of the results."""
    return list(dict.fromkeys(each.endpoint for each in named if each is not None and each.endpoint is not None))
