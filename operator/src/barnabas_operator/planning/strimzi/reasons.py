"""The notes on fields of Strimzi resources that the conversion leaves out: why, or what the user can do instead."""

from collections.abc import Mapping
from typing import Final

from barnabas_operator.resources.schema_check import Path, dotted

NO_COUNTERPART: Final = "the field has no counterpart"
_NO_JVM: Final = "brokers run without a JVM"
_METRICS: Final = "each broker serves /metrics on port 9404 anyway"
_OPERATOR: Final = "the operator manages Topics and Users anyway"
_AUTHORITY: Final = "the operator creates its own CA"
_LIFETIMES: Final = "authorities last ten years and certificates one; both are renewed at two thirds of that"
_CERT_MANAGER: Final = (
    "the operator asks no cert-manager; let it write the authority's Secrets, with generateCertificateAuthority: false"
)
_ROUTES: Final = "the operator creates no Ingress and no Route"
_RIGHTS: Final = "the operator creates all necessary role bindings"
_PRICE_OF_TIERS: Final = "Barnabas has no tiered storage; use the job archive to copy topics"

_KAFKA: Final[Mapping[str, str]] = {
    "spec.zookeeper": "brokers keep their metadata in the Kubernetes API",
    "spec.topicOperator": _OPERATOR,
    "spec.entityOperator": _OPERATOR,
    **{
        f"spec.{authority}.{name}": why
        for authority in ("clusterCa", "clientsCa")
        for name, why in {
            "validityDays": _LIFETIMES,
            "renewalDays": _LIFETIMES,
            "type": _CERT_MANAGER,
            "certManager": _CERT_MANAGER,
            "certificateExpirationPolicy": "barnabas.dev/force-replace makes another key",
        }.items()
    },
    "spec.jmxTrans": _METRICS,
    "spec.maintenanceTimeWindows": "set spec.rolling.pause to true, and back to false when brokers may restart",
    "spec.cruiseControl": "the operator moves replicas itself; see spec.rebalance",
    "spec.kafka.version": "the image determines the version",
    "spec.kafka.metadataVersion": "the operator raises the version when possible; see spec.metadataVersion",
    "spec.kafka.image": "the image contains no Barnabas broker; the chart sets brokerImage instead",
    "spec.kafka.brokerRackInitImage": "brokers get their rack from the operator",
    "spec.kafka.jvmOptions": _NO_JVM,
    "spec.kafka.jmxOptions": _NO_JVM,
    "spec.kafka.metrics": _METRICS,
    "spec.kafka.metricsConfig": _METRICS,
    "spec.kafka.logging": "log levels cannot be set",
    "spec.kafka.tieredStorage": _PRICE_OF_TIERS,
    "spec.kafka.quotas": "set quotas of default users and clients with kafka-configs --entity-default",
    "spec.kafka.resources.claims": NO_COUNTERPART,
    "spec.kafka.rack.idx": NO_COUNTERPART,
    "spec.kafka.storage.kraftMetadata": "brokers keep their metadata in the Kubernetes API",
    "spec.kafka.listeners[].configuration.useServiceDnsDomain": "the names of pods do not include the cluster domain",
    "spec.kafka.listeners[].configuration.maxConnections": "spec.config max.connections limits all listeners together",
    "spec.kafka.listeners[].configuration.maxConnectionCreationRate": (
        "spec.config max.connection.creation.rate limits all listeners together"
    ),
    "spec.kafka.listeners[].configuration.createBootstrapService": "each listener has a bootstrap Service",
    "spec.kafka.listeners[].configuration.publishNotReadyAddresses": "the operator sets the field",
    "spec.kafka.listeners[].configuration.brokers[].advertisedPort": "brokers advertise the port of the Service",
    "spec.kafka.listeners[].configuration.brokers[].host": _ROUTES,
    "spec.kafka.listeners[].configuration.bootstrap.host": _ROUTES,
    "spec.kafka.template.statefulset": "Strimzi ignores the field, too",
    "spec.kafka.template.initContainer": "brokers have no init container",
    "spec.kafka.template.clusterCaCert": _AUTHORITY,
    "spec.kafka.template.clusterRoleBinding": _RIGHTS,
    "spec.kafka.template.jmxSecret": _NO_JVM,
    "spec.kafka.template.externalBootstrapRoute": _ROUTES,
    "spec.kafka.template.externalBootstrapIngress": _ROUTES,
    "spec.kafka.template.perPodRoute": _ROUTES,
    "spec.kafka.template.perPodIngress": _ROUTES,
    "spec.kafkaExporter.image": "the lag exporter is in the operator's image",
    "spec.kafkaExporter.logging": "log levels cannot be set",
    "spec.kafkaExporter.enableSaramaLogging": "log levels cannot be set",
    "spec.kafkaExporter.showAllOffsets": "groups without members are always shown",
    "spec.kafkaExporter.livenessProbe": "change the probe in spec.lagExporter.template.container",
    "spec.kafkaExporter.readinessProbe": "change the probe in spec.lagExporter.template.container",
    "spec.kafkaExporter.template.service": "the lag exporter has no Service",
    "spec.kafkaExporter.template.serviceAccount": _RIGHTS,
}
_POOL: Final[Mapping[str, str]] = {
    "spec.jvmOptions": _NO_JVM,
    "spec.resources.claims": NO_COUNTERPART,
    "spec.template.initContainer": "brokers have no init container",
    "spec.template.perPodRoute": _ROUTES,
    "spec.template.perPodIngress": _ROUTES,
}
_USER: Final[Mapping[str, str]] = {
    "spec.authentication.validityDays": "the operator chooses how long certificates are valid",
    "spec.authentication.renewalDays": "the operator chooses when certificates are renewed",
    "spec.template": "the operator sets the labels of the Secret",
}
_REASONS: Final[Mapping[str, Mapping[str, str]]] = {"Kafka": _KAFKA, "KafkaNodePool": _POOL, "KafkaUser": _USER}

OTHER_KINDS: Final[Mapping[str, str]] = {
    "KafkaConnect": "run Kafka Connect in your own Deployment; Kafka Connect works with Barnabas as with Kafka",
    "KafkaConnector": "create the connector with the REST API of Kafka Connect",
    "KafkaBridge": "run an HTTP proxy for Kafka in your own Deployment",
    "KafkaMirrorMaker": "run MirrorMaker 2 in your own Deployment",
    "KafkaMirrorMaker2": "run MirrorMaker 2 in your own Deployment",
    "KafkaRebalance": "the operator itself proposes moves of replicas; see spec.rebalance of the Cluster",
    "StrimziPodSet": "Barnabas runs brokers in a StatefulSet",
}


def reason(kind: str, path: Path) -> str:
    """Return why a field of a Strimzi resource is left out."""
    pattern = dotted(tuple(0 if isinstance(step, int) else step for step in path)).replace("[0]", "[]")
    return _REASONS.get(kind, {}).get(pattern, NO_COUNTERPART)
