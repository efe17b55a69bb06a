"""Refusals of the authorizer as metrics."""

from barnabas_broker.security.authorizer import Audit, Authorizer
from barnabas_broker.server.metrics.broker_families import authorizer_families
from barnabas_core.acls import AclOperation, AclSubject, ResourceType
from harness.manual_clock import ManualClock


def test_refusals_are_counted_by_operation_and_resource_type() -> None:
    audit = Audit(ManualClock())
    alice = AclSubject("User:alice", "10.0.0.1")
    for _ in range(3):
        audit.refused(alice, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "orders")
    (family,) = authorizer_families(Authorizer([], allow_if_none=False, audit=audit))
    counts = {each.labels: each.value for each in family.samples() if each is not None}
    assert counts['operation="WRITE",resource_type="TRANSACTIONAL_ID"'] == 3
    assert counts['operation="READ",resource_type="TOPIC"'] == 0
    assert list(authorizer_families(None)[0].samples()) == []
