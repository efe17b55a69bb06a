"""The object names, columns, watch lines, leases and access of the Kubernetes store, tested without an API server."""

import base64
import itertools
import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.metadata.documents import encode, topic_key, topic_part_key
from barnabas_broker.metadata.model import (
    BrokerRegistration,
    PartitionState,
    PartReference,
    TopicDocument,
    TopicPartDocument,
)
from barnabas_broker.metadata.store.kubernetes.leases import TOKEN, LeaseList, LeaseObject, LeaseSpec, Observations
from barnabas_broker.metadata.store.kubernetes.objects import (
    Columns,
    ListMetadata,
    Metadata,
    changes_in,
    columns,
    object_name,
)
from barnabas_broker.metadata.store.metadata_store import Change, HistoryCompacted, Lease, StoreUnavailable
from barnabas_kube.access import NoAccess
from barnabas_kube.discovery import find_access
from harness.manual_clock import ManualClock

DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
TOPIC_NAMES = st.text("abzABZ019-_.", min_size=1, max_size=249)


@given(first=TOPIC_NAMES, second=TOPIC_NAMES)
def test_each_topic_has_a_unique_valid_object_name(first: str, second: str) -> None:
    part = PartReference(9_999_900, 100, "0123456789abcdef")
    parts = [object_name("c" * 63, topic_part_key(topic, part)) for topic in (first, second)]
    names = [object_name("demo", topic_key(topic)) for topic in (first, second)]
    assert all(DNS_SUBDOMAIN.fullmatch(name) and len(name) <= 253 for name in parts)
    assert (parts[0] == parts[1]) == (first == second)
    assert all(DNS_SUBDOMAIN.fullmatch(name) and len(name) <= 253 for name in names)
    assert (names[0] == names[1]) == (first == second)


def test_object_names_are_readable() -> None:
    assert object_name("demo", "topics/flights") == "demo.topics.flights"
    assert object_name("demo", "brokers/12") == "demo.brokers.12"
    assert re.fullmatch(r"demo\.topics\.flights-2013-raw\.[0-9a-f]{16}", object_name("demo", "topics/Flights.2013_raw"))
    assert re.fullmatch(
        r"demo\.topics\.consumer-offsets\.[0-9a-f]{16}", object_name("demo", "topics/__consumer_offsets")
    )
    assert re.fullmatch(r"demo\.topics\.[0-9a-f]{64}", object_name("demo", "topics/__"))


def partition(leader: int, isr: tuple[int, ...]) -> PartitionState:
    return PartitionState(replicas=(0, 1, 2), leader=leader, leader_epoch=3, isr=isr)


def topic_of(*partitions: PartitionState) -> bytes:
    return encode(TopicDocument(name="t", topic_id=UUID(int=1), partitions=partitions))


def test_columns_show_leaders_and_replicas_in_sync() -> None:
    full = partition(0, (0, 1, 2))
    assert columns("topics/t", topic_of(full, full, partition(2, (0, 1, 2)))) == Columns("InSync", 3, "0:2 2:1", "9/9")
    assert columns("topics/t", topic_of(full, partition(1, (1,)))).state == "UnderReplicated"
    assert columns("topics/t", topic_of(full, partition(-1, (1,)))) == Columns("Offline", 2, "0:1", "4/6")


def test_columns_of_a_split_topic_show_the_partitions_of_each_document() -> None:
    full = partition(0, (0, 1, 2))
    head = TopicDocument("t", UUID(int=1), (full,) * 2, parts=(PartReference(2, 100, "x"), PartReference(102, 7, "y")))
    assert columns("topics/t", encode(head)) == Columns("InSync", 2, "0:2", "6/6")
    part = TopicPartDocument("t", UUID(int=1), 2, (full, partition(-1, (1,))))
    assert columns("partitions/t/2-x", encode(part)) == Columns("Offline", 2, "0:1", "4/6")


def test_columns_show_whether_a_broker_is_fenced() -> None:
    registration = BrokerRegistration(1, UUID(int=1), ())
    assert columns("brokers/1", encode(registration)) == Columns("Unfenced")
    assert columns("brokers/1", encode(BrokerRegistration(1, UUID(int=1), (), fenced=True))) == Columns("Fenced")
    assert columns("brokers/1", b'{"not":"one"}') == columns("of-a-later-version", b"1") == Columns()


def line(kind: str, version: int, key: str = "topics/a", name: str = "demo.topics.a") -> bytes:
    metadata = {"name": name, "resourceVersion": str(version), "managedFields": []}
    return json.dumps({"type": kind, "object": {"metadata": metadata, "spec": {"key": key, "document": 1}}}).encode()


def error_line(code: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "why"}}).encode()


def test_lines_of_a_watch_are_parsed_to_changes() -> None:
    bookmark = b'{"type":"BOOKMARK","object":{"kind":"StateDocument","metadata":{"resourceVersion":"9"}}}'
    lines = [line("ADDED", 5), line("MODIFIED", 6), line("DELETED", 7)]
    assert changes_in([*lines, bookmark, b""], "demo") == (
        9,
        [Change(5, "topics/a", b"1"), Change(6, "topics/a", b"1"), Change(7, "topics/a", None)],
    )
    assert changes_in([b""], "demo") is None


def test_the_mark_and_foreign_objects_only_advance_the_revision() -> None:
    assert changes_in([line("MODIFIED", 5, "mark", "demo.mark")], "demo") == (5, [])
    assert changes_in([line("ADDED", 6, name="copy")], "demo") == (6, [])


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([error_line(410)], HistoryCompacted),
        ([error_line(500)], StoreUnavailable),
        ([b"<html>"], StoreUnavailable),
        ([b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"5"},"spec":{}}}'], StoreUnavailable),
    ],
)
def test_an_error_or_malformed_line_of_a_watch_raises_an_error(lines: list[bytes], error: type[Exception]) -> None:
    with pytest.raises(error):
        changes_in(lines, "demo")


def a_lease(renewed: str, token: str = "7", holder: str | None = "a") -> LeaseObject:
    metadata = Metadata(name="demo.broker-1", resource_version="1", annotations={TOKEN: token})
    return LeaseObject(metadata, LeaseSpec(holder_identity=holder, lease_duration_seconds=9, renew_time=renewed))


REVISIONS = itertools.count(2)


def seen(observations: Observations, *leases: LeaseObject) -> dict[str, Lease]:
    """Return the leases after a list with these."""
    observations.see_all(LeaseList(ListMetadata(str(next(REVISIONS))), list(leases)), observations.revision)
    return observations.leases()


def at_revision(lease: LeaseObject, revision: int) -> LeaseObject:
    metadata = msgspec.structs.replace(lease.metadata, resource_version=str(revision))
    return msgspec.structs.replace(lease, metadata=metadata)


def test_a_lease_expires_by_the_local_clock_after_its_renewal_was_observed() -> None:
    clock = ManualClock()
    observations = Observations("demo", clock)
    assert seen(observations, a_lease("2099-01-01"))["broker-1"].expires_at_ms == 1_009_000
    clock.pass_time(5)
    assert seen(observations, a_lease("2099-01-01"))["broker-1"].expires_at_ms == 1_009_000
    assert seen(observations, a_lease("1999-01-01"))["broker-1"].expires_at_ms == 1_014_000
    clock.pass_time(1)
    assert seen(observations, a_lease("1999-01-01", token="8"))["broker-1"].expires_at_ms == 1_015_000


def test_a_changed_wall_clock_does_not_change_the_expiry_of_a_lease() -> None:
    clock = ManualClock()
    observations = Observations("demo", clock)
    seen(observations, a_lease("1"))
    clock.pass_time(5)
    clock.ahead_ms += 3_600_000
    assert seen(observations, a_lease("1"))["broker-1"].expires_at_ms == 1_009_000
    clock.ahead_ms -= 7_200_000
    assert seen(observations, a_lease("1"))["broker-1"].expires_at_ms == 1_009_000


def test_released_and_deleted_leases_have_no_holder() -> None:
    observations = Observations("demo", ManualClock())
    assert seen(observations, a_lease("1", holder=None)) == seen(observations, a_lease("1", holder="")) == {}
    assert seen(observations) == {}


def test_lists_and_watch_events_of_leases_may_arrive_in_any_order() -> None:
    clock = ManualClock()
    observations = Observations("demo", clock)
    observations.see_one(at_revision(a_lease("2", token="8"), 50_000), is_gone=False)
    clock.pass_time(5)
    observations.see_all(LeaseList(ListMetadata("49999"), [a_lease("1")]), known=49_998)  # Older than the event.
    observations.see_one(at_revision(a_lease("1"), 49_000), is_gone=True)
    (lease,) = observations.leases().values()
    assert (lease.token, lease.expires_at_ms) == (8, 1_009_000)
    assert observations.revision == 50_000, "the next token must be above all tokens that were seen"
    observations.see_one(at_revision(a_lease("2", token="8"), 50_001), is_gone=True)
    assert observations.leases() == {}


def test_leases_of_a_restored_older_etcd_replace_those_seen_before() -> None:
    observations = Observations("demo", ManualClock())
    observations.see_one(at_revision(a_lease("2", token="8"), 50_000), is_gone=False)
    observations.see_all(LeaseList(ListMetadata("40000"), [a_lease("1")]), known=50_000)
    assert observations.leases()["broker-1"].token == 7
    observations.see_one(at_revision(a_lease("2", token="9"), 40_001), is_gone=False)
    assert observations.leases()["broker-1"].token == 9


def test_a_lease_with_an_invalid_token_has_token_0() -> None:
    observations = Observations("demo", ManualClock())
    for token in ("", "x", "-1", "٣"):
        assert seen(observations, a_lease("1", token))["broker-1"].token == 0


def kubeconfig(path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> dict[str, str]:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "x"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }
    (path / "kubeconfig").write_text(json.dumps(config))
    return {"KUBECONFIG": str(path / "kubeconfig")}


def test_a_kubeconfig_may_contain_a_token_or_refer_to_a_token_file(tmp_path: Path) -> None:
    assert find_access(kubeconfig(tmp_path, {"token": "t"})).read_token() == "t"
    (tmp_path / "tok").write_text("first\n")
    access = find_access(kubeconfig(tmp_path, {"tokenFile": "tok"}))
    assert access.read_token() == "first"
    (tmp_path / "tok").write_text("second\n")
    assert access.read_token() == "second"
    (tmp_path / "tok").unlink()
    with pytest.raises(NoAccess, match="tok: "):
        access.read_token()


@pytest.mark.parametrize("server", ["http://h:1", "http://h:1/", "http://h:1/k8s/clusters/c-1/"])
def test_the_server_of_a_kubeconfig_may_end_in_a_slash(tmp_path: Path, server: str) -> None:
    """Paths are appended to it, and the API server knows no path that begins with two slashes."""
    for user in ({"token": "t"}, {"tokenFile": "tok"}):
        assert find_access(kubeconfig(tmp_path, user, {"server": server})).server == server.rstrip("/")


@pytest.mark.parametrize(
    ("user", "cluster", "complaint"),
    [
        ({"exec": {"command": "aws"}}, {}, "the user u must have a certificate, a token or a tokenFile"),
        ({"token": 5}, {}, "Expected `str"),
        ({}, {"server": "https://h", "certificate-authority": "gone.crt"}, "gone.crt"),
        ({}, {"server": "https://h", "certificate-authority-data": "=x"}, "the certificates or keys cannot be read: "),
        (
            {},
            {"server": "https://h", "certificate-authority-data": base64.b64encode(b"x").decode()},
            "the certificates or keys cannot be read: ",
        ),
    ],
)
def test_an_unusable_kubeconfig_is_refused_with_the_reason(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(NoAccess, match=complaint):
        find_access(kubeconfig(tmp_path, user, cluster))


def test_the_error_for_missing_access_names_the_service_account_and_the_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match=r"KUBERNETES_SERVICE_HOST is not set.*KUBECONFIG"):
        find_access({})
    with pytest.raises(NoAccess, match=r"ca\.crt"):
        find_access({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
    (tmp_path / "kubeconfig").write_text("current-context: nowhere")
    with pytest.raises(NoAccess, match="current-context refers to 'nowhere', which is not in the file"):
        find_access({"KUBECONFIG": str(tmp_path / "kubeconfig")})
