"""The reasons why fields of Strimzi are left out, or what to do instead."""

from collections.abc import Mapping
from typing import Final

from barnabas_operator.resources.schema_check import Path, dotted

NO_COUNTERPART: Final = "it has no counterpart"
_NO_JVM: Final = "brokers run without a JVM"
_METRICS: Final = "not needed, each broker serves /metrics on port 9404"
_OPERATOR: Final = "not needed, the operator takes care of Topics and Users"
_AUTHORITY: Final = "the operator makes an authority of its own"
_ROUTES: Final = "there are no Ingresses and Routes"
_RIGHTS: Final = "the operator makes these rights"
_PRICE_OF_TIERS: Final = "there is no tiered storage; the job archive copies topics"

_KAFKA: Final[Mapping[str, str]] = {
    "spec.zookeeper": "not needed, brokers keep their metadata in the Kubernetes API",
    "spec.topicOperator": _OPERATOR,
    "spec.entityOperator": _OPERATOR,
    "spec.clusterCa": f"{_AUTHORITY}, unless you set spec.clusterCa.generateCertificateAuthority to false",
    "spec.clientsCa": f"{_AUTHORITY}, unless you set spec.clientsCa.generateCertificateAuthority to false",
    "spec.jmxTrans": _METRICS,
    "spec.maintenanceTimeWindows": "set spec.rolling.pause to true, and to false when brokers may restart",
    "spec.cruiseControl": "not needed, the operator moves replicas itself: see spec.rebalance",
    "spec.kafka.version": "the image is the version",
    "spec.kafka.metadataVersion": "the operator raises the level when it can: see spec.metadataVersion",
    "spec.kafka.image": "that image does not hold a broker of Barnabas; the chart's brokerImage does",
    "spec.kafka.brokerRackInitImage": "not needed, brokers learn their rack from the operator",
    "spec.kafka.jvmOptions": _NO_JVM,
    "spec.kafka.jmxOptions": _NO_JVM,
    "spec.kafka.metrics": _METRICS,
    "spec.kafka.metricsConfig": _METRICS,
    "spec.kafka.logging": "log levels cannot be set",
    "spec.kafka.tieredStorage": _PRICE_OF_TIERS,
    "spec.kafka.quotas": "set quotas of default users and clients with kafka-configs --entity-default",
    "spec.kafka.resources.claims": NO_COUNTERPART,
    "spec.kafka.rack.idx": NO_COUNTERPART,
    "spec.kafka.storage.kraftMetadata": "not needed, brokers keep their metadata in the Kubernetes API",
    "spec.kafka.listeners[].configuration.useServiceDnsDomain": "pods get names without the cluster's domain",
    "spec.kafka.listeners[].configuration.maxConnections": "spec.config max.connections bounds all listeners together",
    "spec.kafka.listeners[].configuration.maxConnectionCreationRate": (
        "spec.config max.connection.creation.rate bounds all listeners together"
    ),
    "spec.kafka.listeners[].configuration.createBootstrapService": "each listener has a bootstrap Service",
    "spec.kafka.listeners[].configuration.publishNotReadyAddresses": "the operator sets it",
    "spec.kafka.listeners[].configuration.brokers[].advertisedPort": "clients get the port of the Service",
    "spec.kafka.listeners[].configuration.brokers[].host": _ROUTES,
    "spec.kafka.listeners[].configuration.bootstrap.host": _ROUTES,
    "spec.kafka.template.statefulset": "Strimzi ignores it, too",
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
    "spec.kafkaExporter.livenessProbe": "change it in spec.lagExporter.template.container",
    "spec.kafkaExporter.readinessProbe": "change it in spec.lagExporter.template.container",
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
    "spec.template": "the Secret has the labels that the operator gives it",
}
_REASONS: Final[Mapping[str, Mapping[str, str]]] = {"Kafka": _KAFKA, "KafkaNodePool": _POOL, "KafkaUser": _USER}

OTHER_KINDS: Final[Mapping[str, str]] = {
    "KafkaConnect": "run Kafka Connect with a Deployment of your own; it connects as to any Kafka",
    "KafkaConnector": "create it with the REST API of your Kafka Connect",
    "KafkaBridge": "run an HTTP proxy for Kafka with a Deployment of your own",
    "KafkaMirrorMaker": "run MirrorMaker 2 with a Deployment of your own",
    "KafkaMirrorMaker2": "run MirrorMaker 2 with a Deployment of your own",
    "KafkaRebalance": "not needed, the operator proposes moves by itself: see spec.rebalance of the Cluster",
    "StrimziPodSet": "not needed, brokers run in a StatefulSet",
}


def reason(kind: str, path: Path) -> str:
    """Return why the field of that kind is left out."""
    pattern = dotted(tuple(0 if isinstance(step, int) else step for step in path)).replace("[0]", "[]")
    return _REASONS.get(kind, {}).get(pattern, NO_COUNTERPART)
