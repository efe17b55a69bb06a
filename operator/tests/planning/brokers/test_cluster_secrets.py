"""The Secrets of a secured Cluster, and the settings of the brokers that use them."""

import datetime as dt
import hashlib
import json
from collections.abc import Mapping

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Certificate
from msgspec.structs import replace

from barnabas_broker.app.tls_contexts import rfc2253
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.definitions import parse_properties
from barnabas_core.conventions import credential_secrets
from barnabas_operator.certificates import certificates_in, hosts_of, renewed_at
from barnabas_operator.manifests.cluster_objects import broker_objects, supporting_objects
from barnabas_operator.planning.brokers.authorities import Data
from barnabas_operator.planning.brokers.cluster_secrets import (
    Moment,
    NodeNames,
    SecretsPlan,
    broker_hosts,
    node_names,
    plan_secrets,
    secret_names,
)
from barnabas_operator.planning.brokers.local_properties import properties_text
from barnabas_operator.planning.brokers.pod_properties import companion_users, pod_problems, pod_properties
from barnabas_operator.planning.brokers.pods import ExternalAccess
from barnabas_operator.planning.object_names import FOLDER
from barnabas_operator.planning.users.user_plan import companion_acls
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.security import (
    Authentication,
    AuthenticationType,
    Authorization,
    CertificateAuthority,
    LagExporter,
)

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
META = ObjectMeta(name="one", namespace="air", uid="u-1")
CLUSTER_CA, CLIENTS_CA = "one-cluster-ca", "one-clients-ca"
BROKERS, OPERATOR, ADMIN = "one-broker-certificates", "one-operator", "one-admin"
LAG_EXPORTER, RUNS = "one-lag-exporter", "one-maintenance"


ALICE = Authorization(super_users=("alice",))


def listener(kind: AuthenticationType, name: str = "clients", *, tls: bool = True) -> Listener:
    return Listener(name=name, tls=tls, authentication=Authentication(type=kind))


def secured(*listeners: Listener) -> Cluster:
    return Cluster(metadata=META, spec=ClusterSpec(listeners=listeners, authorization=ALICE))


SCRAM, TLS = secured(listener("scram-sha-512")), secured(listener("tls"))
PLAIN = listener("plain", "plain")


def planned(
    cluster: Cluster,
    found: Mapping[str, Data] | None = None,
    now: dt.datetime = NOW,
    nodes: frozenset[str] = frozenset(),
) -> Mapping[str, Data]:
    hosts = broker_hosts(cluster, ExternalAccess(), nodes)
    plan = plan_secrets(cluster, hosts, ExternalAccess(), Moment(found or {}, {}, now, lambda: "a password"))
    assert isinstance(plan, SecretsPlan), plan
    return plan.by_name


def test_a_second_plan_changes_nothing() -> None:
    for cluster in (SCRAM, TLS):
        first = planned(cluster)
        assert planned(cluster, first, NOW + DAY) == first


def test_a_plan_keeps_the_secrets_that_a_killed_operator_has_stored() -> None:
    first = planned(SCRAM)
    for kept in range(1, len(first)):
        half = dict(list(first.items())[:kept])
        whole = planned(SCRAM, half)
        assert {name: whole[name] for name in half} == half
        assert planned(SCRAM, whole) == whole


def test_certificates_are_renewed_at_two_thirds_of_their_lifetime_and_the_authority_stays() -> None:
    first = planned(TLS)
    (own,) = certificates_in(first[OPERATOR]["tls.crt"].decode())
    later = planned(TLS, first, renewed_at(own))
    changed = {name for name, data in later.items() if data != first[name]}
    assert changed == {BROKERS, OPERATOR, ADMIN, RUNS}
    (renewed,) = certificates_in(later[OPERATOR]["tls.crt"].decode())
    assert renewed.not_valid_after_utc > own.not_valid_after_utc


def test_brokers_trust_a_new_authority_before_it_signs() -> None:
    first = planned(TLS)
    (authority,) = certificates_in(first[f"{CLUSTER_CA}-cert"]["ca.crt"].decode())
    found, now = planned(TLS, first, renewed_at(authority) - DAY), renewed_at(authority)
    signers = set()
    for _ in range(40):
        trusted = certificates_in(found[BROKERS]["cluster-ca.crt"].decode())
        found, now = planned(TLS, found, now), now + DAY
        (shown,) = certificates_in(found[BROKERS]["broker.pem"].decode())
        (signer,) = (each for each in trusted if _has_signed(each, shown))
        signers.add(signer)
    assert len(signers) == 2


def _has_signed(authority: Certificate, shown: Certificate) -> bool:
    try:
        shown.verify_directly_issued_by(authority)
    except InvalidSignature:
        return False
    return True


def test_broker_certificates_have_the_names_of_pods_services_and_current_or_former_nodes() -> None:
    cluster = secured(replace(listener("tls"), type="nodeport"))
    first = planned(cluster, nodes=frozenset({"10.0.0.7", "node-a"}))
    (shown,) = certificates_in(first[BROKERS]["broker.pem"].decode())
    assert {
        "*.one-broker.air.svc",
        "one-broker.air.svc",
        "one-bootstrap.air.svc",
        "one-bootstrap.air.svc.cluster.local",
        "10.0.0.7",
        "node-a",
    } <= hosts_of(shown)
    assert planned(cluster, first) == first
    more = planned(cluster, first, nodes=frozenset({"10.0.0.8"}))
    assert more[BROKERS]["broker.pem"] != first[BROKERS]["broker.pem"]


def nodes(count: int) -> dict[str, dict[str, str]]:
    """Return nodes as of a cloud whose nodes have public addresses."""
    return {
        f"node-{number}": {
            "InternalIP": f"10.0.{number // 250}.{number % 250}",
            "ExternalDNS": f"ec2-18-184-{number // 250}-{number % 250}.eu-central-1.compute.amazonaws.com",
        }
        for number in range(count)
    }


AT_NODES = secured(replace(listener("tls"), type="nodeport"))


def test_broker_certificates_name_only_the_address_that_brokers_advertise_on_each_node() -> None:
    found = node_names(AT_NODES, nodes(2), ["node-0"])
    assert found == NodeNames(frozenset(each["ExternalDNS"] for each in nodes(2).values()))
    inside = secured(replace(listener("tls"), type="nodeport", preferred_node_port_address_type="InternalIP"))
    assert node_names(inside, nodes(2), []).hosts == {"10.0.0.0", "10.0.0.1"}


def test_broker_certificates_stay_below_what_java_clients_accept_however_many_nodes_there_are() -> None:
    found = node_names(AT_NODES, nodes(400), ["node-7", "node-8"])
    assert len(found.hosts) == 2
    assert "nodes take 2" in found.left_out
    hosts = broker_hosts(AT_NODES, ExternalAccess(), node_names(AT_NODES, nodes(140), []).hosts)
    (shown,) = certificates_in(planned(AT_NODES, nodes=hosts)[BROKERS]["broker.pem"].decode())
    assert len(hosts) > 140
    assert len(shown.public_bytes(Encoding.DER)) < 12_000


def test_broker_certificates_name_bootstrap_balancers_and_the_names_that_the_user_adds() -> None:
    cluster = secured(replace(listener("tls"), type="loadbalancer", alternative_names=("*.kafka.example", "192.0.2.7")))
    hosts = broker_hosts(cluster, ExternalAccess(bootstrap_hosts=frozenset({"lb-7.example"})), frozenset())
    assert {"*.kafka.example", "192.0.2.7", "lb-7.example"} <= hosts


def test_brokers_and_operator_are_super_users_by_their_certificates() -> None:
    found = planned(TLS)
    config = parse_broker_config(parse_properties(properties_text(pod_properties(TLS, 0, ExternalAccess()))))
    users = config.originals["super.users"].split(";")
    for name, key in ((BROKERS, "broker.pem"), (OPERATOR, "tls.crt")):
        (shown,) = certificates_in(found[name][key].decode())
        assert f"User:{rfc2253(shown.subject.public_bytes())}" in users
    assert {"User:admin", "User:alice"} <= set(users)
    replication = config.listener_security("REPLICATION-TLS")
    assert replication.value("ssl.client.auth") == "required"
    assert replication.text("ssl.truststore.location") == "/etc/barnabas-certificates/cluster-ca.crt"
    assert (
        config.listener_security("CLIENTS").text("ssl.truststore.location")
        == "/etc/barnabas-certificates/clients-ca.crt"
    )


def test_lag_exporter_and_runs_have_certificates_with_users_of_their_own() -> None:
    exporting = replace(TLS, spec=replace(TLS.spec, lag_exporter=LagExporter()))
    found, before = planned(exporting), planned(TLS)
    assert (found.keys() - before.keys(), LAG_EXPORTER in secret_names(TLS)) == ({LAG_EXPORTER}, False)
    (authority,) = certificates_in(found[f"{CLUSTER_CA}-cert"]["ca.crt"].decode())
    names = []
    for each in (LAG_EXPORTER, RUNS):
        (shown,) = certificates_in(found[each]["client.pem"].decode())
        assert _has_signed(authority, shown)
        names.append(rfc2253(shown.subject.public_bytes()))
        settings = parse_properties(found[each]["client.properties"].decode())
        assert settings["ssl.keystore.location"].value == f"{FOLDER}/client.pem"
    assert names == companion_users(exporting)
    assert not set(names) & set(super_users(exporting))


def test_lag_exporter_and_runs_are_super_users_if_their_acls_would_exclude_others() -> None:
    authorization = Authorization(allow_everyone_if_no_acl_found=True)
    spec = replace(TLS.spec, authorization=authorization, lag_exporter=LagExporter())
    cluster = replace(TLS, spec=spec)
    assert set(companion_users(cluster)) <= set(super_users(cluster))
    assert set(companion_acls(cluster).values()) == {frozenset()}


def super_users(cluster: Cluster) -> list[str]:
    properties = pod_properties(cluster, 0, ExternalAccess())
    return [each.removeprefix("User:") for each in properties["super.users"].split(";")]


@pytest.mark.parametrize(
    ("cluster", "keys"), [(SCRAM, {"password", "sasl.jaas.config"}), (TLS, {"user.crt", "user.key"})]
)
def test_the_administrators_secret_has_one_file_with_all_settings_of_a_client(cluster: Cluster, keys: set[str]) -> None:
    found = planned(cluster)[ADMIN]
    assert found.keys() == {"ca.crt", "client.properties", *keys}
    settings = {key: each.value for key, each in parse_properties(found["client.properties"].decode()).items()}
    assert settings["bootstrap.servers"] == "one-bootstrap.air.svc:9092"
    assert settings["ssl.truststore.certificates"] == found["ca.crt"].decode()
    for key, setting in (("sasl.jaas.config", "sasl.jaas.config"), ("user.key", "ssl.keystore.key")):
        assert settings.get(setting) == (found[key].decode() if key in found else None)


@pytest.mark.parametrize(
    ("listeners", "module"),
    [
        ((PLAIN,), "plain.PlainLoginModule"),
        ((PLAIN, listener("scram-sha-512")), "plain.PlainLoginModule"),
        ((listener("scram-sha-512"), PLAIN), "scram.ScramLoginModule"),
        ((listener("tls"), PLAIN), "plain.PlainLoginModule"),
    ],
)
def test_the_administrator_uses_the_mechanism_of_the_first_listener_with_passwords(
    listeners: tuple[Listener, ...], module: str
) -> None:
    found = planned(secured(*listeners))[ADMIN]
    settings = {key: each.value for key, each in parse_properties(found["client.properties"].decode()).items()}
    jaas = found["sasl.jaas.config"].decode()
    assert jaas.startswith(f"org.apache.kafka.common.security.{module} ")
    by_password = settings["security.protocol"] == "SASL_SSL"
    mechanism = "PLAIN" if "plain" in module else "SCRAM-SHA-512"
    assert by_password is (listeners[0] != listener("tls"))
    assert settings.get("sasl.mechanism") == (mechanism if by_password else None)
    assert settings.get("sasl.jaas.config") == (jaas if by_password else None)


def test_brokers_of_a_plain_listener_have_no_passwords_in_their_settings() -> None:
    cluster = secured(PLAIN)
    assert not list(pod_problems(cluster))
    properties = pod_properties(cluster, 0, ExternalAccess())
    own = {name: value for name, value in properties.items() if name.startswith("listener.name.plain.")}
    assert own == {
        "listener.name.plain.ssl.client.auth": "none",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.sasl.plain.credentials": "scram",
    }
    assert "jaas" not in properties_text(properties)


def test_pods_mount_their_whole_certificate_secret_and_have_rights_only_to_credentials() -> None:
    (_, brokers) = broker_objects(SCRAM, ExternalAccess(), "image", 1)
    spec = brokers["spec"]["template"]["spec"]
    assert [each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each] == [BROKERS]
    (mount,) = (each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "barnabas-certificates")
    assert "subPath" not in mount
    (role,) = (each for each in supporting_objects(SCRAM) if each["kind"] == "Role")
    (rule,) = role["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (list(credential_secrets("one")), ["get", "watch", "patch"])


GIVEN = CertificateAuthority(generate_certificate_authority=False)
REFUSED = {
    "an authority that signs nothing": (
        Cluster(metadata=META, spec=ClusterSpec(clients_ca=GIVEN)),
        (
            "spec.clientsCa.generateCertificateAuthority is false, but the Cluster uses no certificates; "
            "set the field to true, or set any of spec.listeners[].tls"
        ),
    ),
    "passwords in clear": (
        secured(listener("plain", tls=False)),
        "spec.listeners[0].authentication.type is plain, which sends passwords in clear without TLS; set the ",
    ),
    "rights of nobody": (secured(Listener(name="a")), "spec.listeners[0].authentication is missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_security_settings_are_refused_with_what_is_allowed(name: str) -> None:
    cluster, message = REFUSED[name]
    assert [each for _, each in pod_problems(cluster) if each.startswith(message)]


def test_the_objects_of_an_open_cluster_do_not_change() -> None:
    """Otherwise all brokers would restart when the operator is upgraded."""
    listeners = (Listener(name="plain"), Listener(name="outside", port=9094, type="nodeport"))
    spec = ClusterSpec(brokers=Brokers(replicas=3), listeners=listeners, config={"num.partitions": "3"})
    cluster = Cluster(metadata=replace(META, name="flights"), spec=spec)
    external = ExternalAccess({("outside", number): 30000 + number for number in range(3)})
    made = [broker_objects(cluster, external, "broker:1", 3), supporting_objects(cluster)]
    assert [hashlib.sha256(json.dumps(each).encode()).hexdigest()[:16] for each in made] == [
        "fb38f8fdcbc3a98d",
        "d710a3b4e75a3f52",
    ]
