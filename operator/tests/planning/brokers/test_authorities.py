"""When an authority is created, trusted, used and removed."""

import datetime as dt

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from barnabas_operator.certificates import Authority, certificates_in, has_issued, renewed_at
from barnabas_operator.planning.brokers.authorities import (
    BROKEN_SECRET,
    TRUSTED_FIRST,
    AuthorityPlan,
    AuthoritySecrets,
    plan_authority,
)
from barnabas_operator.planning.conditions import Refusal

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NOTHING = AuthoritySecrets(None, None)
DAY = dt.timedelta(days=1)


def planned(found: AuthoritySecrets, now: dt.datetime) -> AuthorityPlan:
    made = plan_authority("one-cluster-ca", found, now, lambda: "a password")
    assert isinstance(made, AuthorityPlan), made
    return made


def stored(plan: AuthorityPlan) -> AuthoritySecrets:
    return AuthoritySecrets(plan.key, plan.certificate)


def signer(plan: AuthorityPlan) -> bytes:
    return plan.key["ca.key"]


def test_an_authority_stays_unchanged_until_two_thirds_of_its_lifetime() -> None:
    first = planned(NOTHING, BEGIN)
    (certificate,) = certificates_in(first.trusted)
    later = planned(stored(first), renewed_at(certificate) - DAY)
    assert (later.key, later.certificate) == (first.key, first.certificate)
    store = load_pkcs12(first.certificate["ca.p12"], b"a password")
    assert [each.certificate for each in store.additional_certs] == [certificate]


def test_a_new_authority_is_trusted_a_month_before_it_signs_and_the_old_until_it_expires() -> None:
    first = planned(NOTHING, BEGIN)
    (old,) = certificates_in(first.trusted)
    due = renewed_at(old)
    both = planned(stored(first), due)
    assert signer(both) == signer(first)
    old, new = certificates_in(both.trusted)
    assert planned(stored(both), due + TRUSTED_FIRST - DAY)[1:] == both[1:]
    turned = planned(stored(both), due + TRUSTED_FIRST)
    assert signer(turned) == both.key["next.key"]
    assert "next.key" not in turned.key
    assert list(certificates_in(turned.trusted)) == [new, old]
    assert list(certificates_in(planned(stored(turned), old.not_valid_after_utc).trusted)) == [new]


def test_an_expired_authority_is_replaced_at_once() -> None:
    first = planned(NOTHING, BEGIN)
    (old,) = certificates_in(first.trusted)
    late = planned(stored(first), old.not_valid_after_utc + DAY)
    assert signer(late) != signer(first)
    assert old not in certificates_in(late.trusted)


def test_a_certificate_never_outlives_its_authority() -> None:
    first = planned(NOTHING, BEGIN)
    (own,) = certificates_in(first.trusted)
    late = Authority(first.signer.pem, own.not_valid_after_utc - DAY)
    (issued,) = certificates_in(late.issue("alice").certificate)
    assert issued.not_valid_after_utc == own.not_valid_after_utc
    assert has_issued(late.certificate, issued)
    assert not has_issued(planned(NOTHING, BEGIN).signer.certificate, issued)


def test_an_authority_without_its_key_is_refused_with_what_to_do() -> None:
    refusal = plan_authority("one-cluster-ca", stored(planned(NOTHING, BEGIN))._replace(key=None), BEGIN, lambda: "")
    assert isinstance(refusal, Refusal)
    assert refusal.reason == BROKEN_SECRET
    assert "restore the Secret from a backup, or delete the Secrets one-cluster-ca and one-cluster-ca-cert" in (
        refusal.message
    )


def test_a_deleted_certificate_secret_is_restored_from_the_secret_of_the_key() -> None:
    first = planned(NOTHING, BEGIN)
    again = planned(stored(first)._replace(certificate=None), BEGIN)
    assert (again.key, again.trusted) == (first.key, first.trusted)


def test_the_key_of_another_authority_is_refused() -> None:
    one, other = planned(NOTHING, BEGIN).key, planned(NOTHING, BEGIN).key
    mixed = AuthoritySecrets({**one, "ca.key": other["ca.key"]}, None)
    refusal = plan_authority("one-cluster-ca", mixed, BEGIN, lambda: "")
    assert isinstance(refusal, Refusal)
    assert "the key of the authority does not belong to its certificate" in refusal.message


def test_an_encrypted_key_is_refused() -> None:
    first = planned(NOTHING, BEGIN)
    key = load_pem_private_key(signer(first), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a password"))
    found = AuthoritySecrets({**first.key, "ca.key": encrypted}, first.certificate)
    refusal = plan_authority("one-cluster-ca", found, BEGIN, lambda: "")
    assert isinstance(refusal, Refusal)
    assert "the private key is encrypted" in refusal.message
