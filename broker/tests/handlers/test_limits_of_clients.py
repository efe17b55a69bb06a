"""The quotas and limits of clients on one broker, which clients can neither evade nor use to fill the memory."""

from types import SimpleNamespace
from typing import Any

from barnabas_broker.handlers import classic_groups, handler_environment
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.classic_groups import METADATA_BYTES_MAX
from barnabas_broker.handlers.handler_environment import CLIENT_ID_CHARS_MAX, COUNTERS_MAX, ClientQuotas
from barnabas_broker.metadata.model import ClientQuotasDocument, EntityQuotas
from barnabas_broker.wire.messages import JoinGroupRequest, JoinGroupResponse
from barnabas_core.errors import ErrorCode
from harness.manual_clock import ManualClock

OF_EACH_CLIENT = EntityQuotas({"client-id": None}, {"controller_mutation_rate": 1.0})
OF_ALICE = EntityQuotas({"user": "alice"}, {"producer_byte_rate": 1_000.0})
OF_EACH_ADDRESS = EntityQuotas({"ip": None}, {"connection_creation_rate": 1.0})


def quotas_of(*entities: EntityQuotas) -> ClientQuotas:
    image: Any = SimpleNamespace(document=lambda key: ClientQuotasDocument(entities), subscribe=lambda call: None)
    return ClientQuotas(image, ManualClock(), "BROKERS")


def client(client_id: str | None, listener_name: str = "CLIENTS") -> Client:
    return Client(listener_name, "10.0.0.1:1", client_id, "User:alice")


def test_a_user_has_one_counter_for_all_client_ids_and_connections() -> None:
    quotas = quotas_of(OF_ALICE)
    limits = [client(each).limits(quotas) for each in ("a", "", None, "a")]
    assert len({each.produced_bytes for each in limits if each is not None}) == 1


def test_a_flood_of_client_ids_creates_limited_counters_and_resets_no_counter() -> None:
    quotas = quotas_of(OF_ALICE, OF_EACH_CLIENT)
    alice = client("first").limits(quotas)
    assert alice is not None
    assert alice.produced_bytes is not None
    alice.produced_bytes.count(1_000_000)
    for number in range(2 * COUNTERS_MAX + 5):
        client(str(number)).limits(quotas)
    assert len(quotas.counters()) == COUNTERS_MAX >= len(quotas._limits)
    again = client("last").limits(quotas)
    assert again is not None
    assert again.produced_bytes is alice.produced_bytes


def test_a_long_client_id_is_truncated() -> None:
    quotas = quotas_of(OF_EACH_CLIENT)
    assert client("x" * 30_000).limits(quotas) is not None
    assert [len(each.client_id) for each in quotas.counters()] == [CLIENT_ID_CHARS_MAX]
    assert [len(client_id or "") for _, client_id in quotas._limits] == [CLIENT_ID_CHARS_MAX]


def test_connections_on_the_inter_broker_listener_have_no_quota() -> None:
    quotas = quotas_of(OF_ALICE)
    assert client("a").limits(quotas) is not None
    assert client("a", listener_name="BROKERS").limits(quotas) is None


def test_addresses_have_separate_counters_and_the_oldest_is_evicted(monkeypatch: Any) -> None:
    monkeypatch.setattr(handler_environment, "COUNTERS_MAX", 2)
    quotas = quotas_of(OF_EACH_ADDRESS)
    waits = [quotas.connection_wait_ms("10.0.0.1") for _ in range(12)]
    assert (waits[:10], waits[10] > 0, waits[11] > 0) == ([0] * 10, True, True)
    assert [quotas.connection_wait_ms(each) for each in ("10.0.0.2", "10.0.0.3")] == [0, 0]
    assert list(quotas._addresses) == ["10.0.0.2", "10.0.0.3"]


def test_a_member_with_very_much_metadata_is_refused_before_it_joins() -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    halves = [protocol(name=name, metadata=bytes(METADATA_BYTES_MAX // 2 + 1)) for name in ("range", "sticky")]
    context: Any = RequestContext(11, 9, client("a"))
    nobody: Any = SimpleNamespace()
    answer = classic_groups.join_group(nobody, context, JoinGroupRequest(group_id="g", member_id="m", protocols=halves))
    assert isinstance(answer, JoinGroupResponse)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_REQUEST, "m")
