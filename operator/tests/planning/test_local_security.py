"""Listeners and rights of a Cluster: those that are refused, and the settings of local brokers for the others."""

import pytest

from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.definitions import parse_properties
from barnabas_operator.planning.brokers.broker_security import BrokerSecrets
from barnabas_operator.planning.brokers.local_properties import (
    BrokerPlace,
    manifest_problems,
    properties_text,
    server_properties,
)
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.security import Authentication, AuthenticationType, Authorization
from barnabas_operator.resources.yaml_documents import parse_manifests

HEAD = "apiVersion: barnabas.dev/v1alpha1\nkind: Cluster\nmetadata: {name: c}\nspec:\n"
WITH_USERS = "  listeners: [{name: clients, tls: true, authentication: {type: tls}}]\n"
PLACE = BrokerPlace(0, 19092, 18080, "/data/broker-0", "/data/metadata.sqlite", 19093)
SECRETS = BrokerSecrets("/data/security/broker/user.pem", "/data/security/ca.crt")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (WITH_USERS + "  authorization: {superUsers: [alice]}\n", None),
        (
            "  listeners: [{name: clients, authentication: {type: tls}}]\n",
            (
                "spec.listeners[0].authentication.type is tls, which needs a listener with TLS;"
                " set the listener's tls to true, or its authentication.type to scram-sha-512"
            ),
        ),
        (
            "  listeners: [{name: clients, authentication: {type: plain}}]\n",
            (
                "spec.listeners[0].authentication.type is plain, which sends passwords in clear without TLS;"
                " set the listener's tls to true, or its authentication.type to scram-sha-512"
            ),
        ),
        (
            "  listeners: [{name: clients, tls: true, authentication: {type: oauth}}]\n",
            "spec.listeners[0].authentication.type is 'oauth' (string); allowed: plain or scram-sha-512 or tls",
        ),
        (
            "  authorization: {}\n",
            (
                "spec.listeners[0].authentication is missing, but spec.authorization is set;"
                " set authentication.type of the listener to tls, scram-sha-512 or plain, or remove spec.authorization"
            ),
        ),
        (
            WITH_USERS + "  authorization: {superUsers: [broker]}\n",
            (
                "spec.authorization.superUsers[0] is broker, which is a user of Barnabas itself; "
                "allowed: all names except broker, operator"
            ),
        ),
        (
            WITH_USERS + "  authorization: {superUsers: [ANONYMOUS]}\n",
            (
                "spec.authorization.superUsers[0] is ANONYMOUS; allowed: the name of one user, because in Kafka "
                "User:ANONYMOUS stands for all clients that have not authenticated"
            ),
        ),
        (
            "  listeners: [{name: replication, tls: true}]\n",
            (
                "spec.listeners[0].name is replication;"
                " allowed: any other name, because the listener between brokers is named replication"
            ),
        ),
        (
            WITH_USERS + "  authorization: {}\n  config: {super.users: User:eve}\n",
            "spec.config must not set super.users, because the value comes from spec.authorization",
        ),
        (
            WITH_USERS + "  config: {ssl.client.auth: none}\n",
            "spec.config must not set ssl.client.auth, because the value comes from spec.listeners",
        ),
    ],
)
def test_an_unsupported_security_setting_is_refused_with_what_is_allowed(spec: str, message: str | None) -> None:
    found = [each.message for each in manifest_problems(parse_manifests({"a.yaml": HEAD + spec}), "dir")]
    assert found == ([] if message is None else [message])


@pytest.mark.parametrize(("kind", "protocol"), [("tls", "SSL"), ("scram-sha-512", "SASL_SSL"), ("plain", "SASL_SSL")])
def test_a_broker_can_parse_the_settings_of_a_secured_cluster(kind: AuthenticationType, protocol: str) -> None:
    text = properties_text(server_properties(secured(kind), PLACE, SECRETS))
    config = parse_broker_config(parse_properties(text))
    assert [str(each) for each in config.listeners.bound] == [
        "CLIENTS://127.0.0.1:19092",
        "REPLICATION://127.0.0.1:19093",
    ]
    assert config.listener_security("CLIENTS").protocol.name == protocol
    assert config.listener_security("CLIENTS").text("ssl.client.auth") == ("required" if kind == "tls" else "none")
    assert config.listener_security("REPLICATION").text("ssl.client.auth") == "required"
    assert config.listeners.inter_broker == "REPLICATION"
    assert "super.users=User:broker;User:operator;User:admin;User:alice\n" in text
    assert ("sasl.plain.credentials=scram" in text) is (kind == "plain")


def secured(kind: AuthenticationType) -> Cluster:
    listener = Listener(name="clients", tls=True, authentication=Authentication(type=kind))
    spec = ClusterSpec(listeners=(listener,), authorization=Authorization(super_users=("alice",)))
    return Cluster(metadata=ObjectMeta(name="c"), spec=spec)
