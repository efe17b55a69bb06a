"""The plan for a User changes only what differs, and only what belongs to the user."""

import msgspec
import pytest
from declared_users import rule, user

from barnabas_core.acls import AclEntry, AclOperation, AclPattern, PatternType, Permission, ResourceType
from barnabas_operator.planning.admission import AdmissionContext, review_user
from barnabas_operator.planning.conditions import Refusal, time_text
from barnabas_operator.planning.users.user_plan import (
    REVOKE,
    SCRAM_256,
    SCRAM_512,
    Acl,
    ClusterUsers,
    CreateAcls,
    DeleteAcls,
    DeletePassword,
    FoundUser,
    KnownPassword,
    SetPassword,
    SetQuotas,
    UserContext,
    UserStep,
    describe,
    plan_deletion,
    plan_user,
    refuse,
)
from barnabas_operator.planning.users.user_secret import PasswordStatus, password_event, password_status
from barnabas_operator.resources.user import User

SALT = b"of alice"
KNOWN = KnownPassword("geheim", SALT, "salt-", "1")
NEXT = KnownPassword("neu", SALT, "salt-", "2")
READY = {
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Reconciled",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
    ],
    "observedGeneration": 1,
    "cluster": "one",
    "username": "alice",
    "passwordId": "salt-1",
}


def acl(operation: AclOperation, host: str = "*", kind: ResourceType = ResourceType.TOPIC) -> Acl:
    pattern = AclPattern(kind, "flights", PatternType.LITERAL)
    return Acl(pattern, AclEntry("User:alice", host, operation, Permission.ALLOW))


def test_a_new_user_gets_its_declared_password_acls_and_quotas() -> None:
    wanted = user(
        authorization={"acls": [rule("topic", "Read", "Describe"), rule("group", "Read")]},
        quotas={"producerByteRate": 1000, "controllerMutationRate": 0.5},
    )
    plan = plan_user(wanted, FoundUser(), KNOWN)
    group = acl(AclOperation.READ, kind=ResourceType.GROUP)
    assert plan.steps == (
        SetPassword("alice", SCRAM_512, "geheim", SALT),
        CreateAcls("alice", (acl(AclOperation.READ), acl(AclOperation.DESCRIBE), group)),
        SetQuotas("alice", {"producer_byte_rate": 1000.0, "controller_mutation_rate": 0.5}),
    )
    assert not plan.drift, "nobody has changed it"
    assert "geheim" not in repr(plan) + "".join(describe(step) for step in plan.steps)


def test_changes_by_others_are_undone_as_drift_and_addresses_are_compared_by_value() -> None:
    wanted = user(status=READY, authorization={"acls": [rule("topic", "Read", host="::1")]})
    here = FoundUser(frozenset({SCRAM_512}), frozenset({acl(AclOperation.READ, "0:0:0:0:0:0:0:1")}))
    assert plan_user(wanted, here, KNOWN).steps == ()
    added = acl(AclOperation.WRITE)
    changed = FoundUser(frozenset({SCRAM_512, SCRAM_256}), here.acls | {added}, {"producer_byte_rate": 5.0})
    plan = plan_user(wanted, changed, KNOWN)
    assert plan.drift == plan.steps
    assert plan.steps == (
        DeletePassword("alice", SCRAM_256),
        DeleteAcls("alice", (added,)),
        SetQuotas("alice", {"producer_byte_rate": None}),
    )


def test_a_changed_password_is_set_and_does_not_count_as_drift() -> None:
    there = FoundUser(frozenset({SCRAM_512}))
    plan = plan_user(user(status=READY), there, NEXT)
    assert plan.steps == (SetPassword("alice", SCRAM_512, "neu", SALT),)
    assert not plan.drift
    gone = plan_user(user(status=READY), FoundUser(), KNOWN)
    assert gone.drift == (SetPassword("alice", SCRAM_512, "geheim", SALT),)


def test_a_deleted_user_loses_everything_unless_its_policy_or_another_resource_keeps_it() -> None:
    found = FoundUser(frozenset({SCRAM_512}), frozenset({acl(AclOperation.READ)}), {"request_percentage": 5.0})
    plan = plan_deletion(user(status=READY), found, ())
    assert [type(step) for step in plan.steps] == [DeletePassword, DeleteAcls, SetQuotas]
    assert not plan_deletion(user(status=READY), found, ("alice",)).steps
    assert not plan_deletion(user(status=READY, deletionPolicy="Retain"), found, ()).steps
    assert not plan_deletion(user(status=READY, pause=True), found, ()).steps
    assert not plan_deletion(user(status={}), found, ()).steps, "the resource was refused and never had that user"
    refusal = plan_deletion(user(status=READY, deletionPolicy="Protect"), found, ()).refusal
    assert refusal is not None
    assert refusal.reason == "DeletionProtected"


REFUSED = (
    (
        user("x", username="*"),
        "spec.username is *; allowed: the name of one user, because in Kafka User:* stands for all users",
    ),
    (user("x", "external", username="ANONYMOUS"), "spec.username is ANONYMOUS; allowed: the name of one user"),
    (user("a" * 65, "tls"), f"metadata.name is {'a' * 65}; allowed with TLS authentication: 1 to 64 letters"),
    (
        user(kind="tls", username="O=Acme, Inc"),
        "spec.username is O=Acme, Inc; allowed with TLS authentication: 1 to 64 letters",
    ),
    (
        user(authorization={"acls": [{"resource": {"type": "topic", "name": "__t"}, "operations": ["Read"]}]}),
        "spec.authorization.acls[0].resource.name is __t; allowed: names that do not begin with __",
    ),
    (
        user(authorization={"acls": [rule("cluster", "Alter")]}),
        (
            "spec.authorization.acls[0].resource.name is flights, but a resource of type cluster has no "
            "name; remove the field"
        ),
    ),
    (
        user(authorization={"acls": [rule("topic", "Read", host="1.2.3")]}),
        "spec.authorization.acls[0].host is 1.2.3; allowed: an IP address, or *",
    ),
    (
        user(
            kind="tls",
            authentication={"type": "tls", "password": {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}},
        ),
        "spec.authentication.password is set, but spec.authentication.type is tls; remove",
    ),
    (user(quotas={"controllerMutationRate": 0.0}), "spec.quotas.controllerMutationRate is 0; allowed: more than 0"),
)


@pytest.mark.parametrize(("wrong", "why"), REFUSED, ids=range(len(REFUSED)))
def test_an_invalid_user_is_refused_with_field_value_and_what_is_allowed(wrong: User, why: str) -> None:
    refusal = refuse(wrong, UserContext(ClusterUsers({})))
    assert refusal is not None
    assert refusal.message.startswith(why)
    assert review_user(wrong, None, AdmissionContext()).refusal == refusal.message


def test_a_user_cannot_be_managed_twice_renamed_or_named_like_one_of_the_cluster() -> None:
    said = review_user(user(username="bob"), None, AdmissionContext(taken_by="robert")).refusal
    assert said == "user bob is already managed by the User robert; only one User resource may manage a user"
    said = review_user(user(username="bob"), user(), AdmissionContext()).refusal
    assert said == "spec.username is bob; allowed: no value, because a user cannot be renamed"
    refusal = refuse(user("admin"), UserContext(ClusterUsers({}), {"admin"}))
    assert refusal is not None
    assert "metadata.name is admin, which is a user of the Cluster itself" in refusal.message


def test_acls_need_an_authorizer_and_an_existing_user_is_adopted_only_if_allowed() -> None:
    context = UserContext(ClusterUsers({"alice": FoundUser(frozenset({SCRAM_512}))}, has_authorizer=False))
    refusal = refuse(user(authorization={"acls": [rule("topic", "Read")]}), context)
    assert refusal is not None
    assert refusal.reason == "NoAuthorizer"
    passing = refuse(user(authorization={"acls": [rule("topic", "Read")]}), context._replace(has_rights=True))
    assert passing == Refusal(
        "ClusterNotReady",
        "spec.authorization waits: the brokers have no authorizer until status.securityStage of the Cluster is Secured",
    )
    assert refuse(user(), context) is None
    refusal = refuse(user(adopt=False), context)
    assert refusal is not None
    assert refusal.message.startswith("user alice existed before the User, and spec.adopt is false")
    assert refuse(user(adopt=False, status=READY), context) is None


THERE = FoundUser(mechanisms=frozenset({SCRAM_512}))
NOW_MS = 1_800_000_000_000
HOUR = {"type": "scram-sha-512", "password": {"overlapSeconds": 3600}}


def overlapping(revoke: str | None = None, authentication: object = None, **status: object) -> User:
    """Return a User whose passwords overlap by an hour; `revoke` is the value of its annotation."""
    made = user(status=READY | status, authentication=authentication or HOUR)
    if revoke is not None:
        made.metadata.annotations[REVOKE] = revoke
    return made


def passwords(wanted: User, known: KnownPassword) -> tuple[tuple[UserStep, ...], PasswordStatus]:
    plan = plan_user(wanted, THERE, known)
    return plan.steps, password_status(wanted, plan, known, NOW_MS)


def test_a_new_password_overlaps_with_the_previous_one_for_the_declared_time() -> None:
    steps, status = passwords(overlapping(), NEXT)
    assert steps == (SetPassword("alice", SCRAM_512, "neu", SALT, 3600),)
    assert describe(steps[0]) == (
        "set the password of user alice (SCRAM-SHA-512; the previous one stays valid for 3600 s)"
    )
    assert status == PasswordStatus("salt-2", time_text(NOW_MS + 3_600_000), None)


def test_the_end_of_an_overlap_needs_no_step_and_leaves_the_status() -> None:
    both = {"passwordId": "salt-2", "previousPasswordUntil": time_text(NOW_MS + 1000)}
    assert passwords(overlapping(**both), NEXT) == ((), PasswordStatus("salt-2", both["previousPasswordUntil"], None))
    over = both | {"previousPasswordUntil": time_text(NOW_MS)}
    assert passwords(overlapping(**over), NEXT) == ((), PasswordStatus("salt-2", None, None))


def test_a_new_value_of_the_annotation_ends_the_previous_password_once() -> None:
    both = {"passwordId": "salt-2", "previousPasswordUntil": time_text(NOW_MS + 1000)}
    steps, status = passwords(overlapping(revoke="now", **both), NEXT)
    assert steps == (SetPassword("alice", SCRAM_512, "neu", SALT),)
    assert status == PasswordStatus("salt-2", None, "now")
    assert passwords(overlapping(revoke="now", passwordId="salt-2", revoked="now"), NEXT)[0] == ()


def test_a_rotation_and_a_revocation_together_leave_no_overlap() -> None:
    steps, status = passwords(overlapping(revoke="now"), NEXT)
    assert steps == (SetPassword("alice", SCRAM_512, "neu", SALT),)
    assert status == PasswordStatus("salt-2", None, "now")


@pytest.mark.parametrize("had", ["other-1", "1", None])
def test_a_password_with_another_salt_cannot_overlap(had: str | None) -> None:
    steps, status = passwords(overlapping(passwordId=had), NEXT)
    assert steps == (SetPassword("alice", SCRAM_512, "neu", SALT),)
    assert status.previous_until is None


def test_a_password_of_an_earlier_operator_gets_the_salt_of_the_secret_only_when_an_overlap_is_declared() -> None:
    plain = overlapping(passwordId="1", authentication={"type": "scram-sha-512"})
    assert passwords(plain, KNOWN) == ((), PasswordStatus("1", None, None))
    steps, status = passwords(overlapping(passwordId="1"), KNOWN)
    assert steps == (SetPassword("alice", SCRAM_512, "geheim", SALT),)
    assert status == PasswordStatus("salt-1", None, None)
    assert password_event("alice", PasswordStatus("1"), status) is None, "the password is the same"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (PasswordStatus("salt-1"), PasswordStatus("salt-2"), "connections that used the old password were closed"),
        (PasswordStatus("1"), PasswordStatus("salt-2", "2027"), "the old password works until 2027"),
        (PasswordStatus("salt-2", "2027"), PasswordStatus("salt-2", None, "now"), "has ended on request"),
        (PasswordStatus("salt-2", "2027"), PasswordStatus("salt-2"), None),
        (PasswordStatus(), PasswordStatus("salt-1"), None),
        (PasswordStatus("salt-1"), PasswordStatus(), None),
    ],
)
def test_an_event_reports_a_new_password_and_a_revocation(
    before: PasswordStatus, after: PasswordStatus, says: str | None
) -> None:
    said = password_event("alice", before, after)
    assert (said is None) if says is None else (said is not None and said[2].count(says) == 1)


@pytest.mark.parametrize("seconds", [-1, 7 * 24 * 3600 + 1, 1.5, "1h"])
def test_an_overlap_that_is_negative_longer_than_a_week_or_no_whole_number_is_refused(seconds: object) -> None:
    with pytest.raises(msgspec.ValidationError, match="overlapSeconds"):
        overlapping(authentication={"type": "scram-sha-512", "password": {"overlapSeconds": seconds}})
