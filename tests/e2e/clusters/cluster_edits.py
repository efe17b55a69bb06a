"""A table with an edit that cannot work for every field of a Cluster, and the words of its refusal.

Some of these edits are stored: they do no lasting harm, because they can be taken back. The claims of volume 0 of the
Cluster are bound.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final, NamedTuple

from msgspec import Struct, inspect

from barnabas_operator.resources.cluster import Brokers, ClusterSpec, Listener, Rolling, Storage, Volume
from barnabas_operator.resources.kind import ClusterTemplate, JsonObject
from barnabas_operator.resources.maintenance_run import MaintenanceEntry
from barnabas_operator.resources.security import LagExporter

PARTS: Final = (Brokers, Storage, Volume, Listener, Rolling, ClusterTemplate, LagExporter, MaintenanceEntry)
"""The types whose fields are edited one by one; every other field is edited as a whole."""


class Edit(NamedTuple):
    """An edit that gives the field this `value`; `says` is a part of the refusal, "" if it is stored."""

    value: Any
    says: str = ""


NO_FIELD: Final = {"spec": {"nobodys": 1}}
NO_LABEL: Final = {"metadata": {"labels": {"a": "b c"}}}
NOWHERE: Final = "registry.example/nobodys:1"
EDITS: Final[Mapping[str, Edit]] = {
    "brokers.replicas": Edit(0, "1"),
    "brokers.image": Edit(NOWHERE),
    "brokers.resources": Edit({"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}, "at most 1Gi"),
    "brokers.rack": Edit({"topologyKey": "nobodys.example/label"}),
    "storage.volumes.id": Edit(7, "Removing volumes is not supported: spec.storage.volumes lacks the id 0"),
    "storage.volumes.size": Edit("2Gi", "does not set allowVolumeExpansion to true"),
    "storage.volumes.storageClass": Edit("nobodys", "because existing claims cannot change their storage class"),
    "storage.volumes.deleteClaim": Edit(True),
    "insecure": Edit(False, "has neither tls nor authentication"),
    "listeners.name": Edit("http", "choose another name"),
    "listeners.port": Edit(9091, "9091"),
    "listeners.type": Edit("loadbalancer"),
    "listeners.tls": Edit(True),
    "listeners.authentication": Edit({"type": "tls"}, "authentication"),
    "listeners.advertisedHost": Edit("nobodys.example"),
    "listeners.alternativeNames": Edit(["not a name"], "alternativeNames[0] is not a name"),
    "listeners.preferredNodePortAddressType": Edit("Hostname"),
    "listeners.networkPolicyPeers": Edit([{"podSelector": {"matchLabels": {"a": "b c"}}}], "NetworkPolicy"),
    "listeners.template": Edit({"brokerServices": [{"brokerId": 0, "spec": {"selector": {"a": "b"}}}]}, "selector"),
    "authorization": Edit({"type": "simple"}, "authorization"),
    "clusterCa": Edit({"generateCertificateAuthority": False}, "generateCertificateAuthority"),
    "clientsCa": Edit({"generateCertificateAuthority": False}, "generateCertificateAuthority"),
    "config": Edit({"log.dirs": "/tmp"}, "log.dirs"),
    "rolling.maxUnavailablePerRack": Edit(0, "1"),
    "rolling.pause": Edit(True),
    "metadataVersion": Edit(1, "downgrade"),
    "template.metadata": Edit({"labels": {"app.kubernetes.io/name": "mine"}}, "choose another name"),
    "template.statefulSet": Edit({"spec": {"replicas": 5}}, "remove the field from the template"),
    "template.pod": Edit({"spec": {"nodeSelector": {"nobodys": "node"}}}),
    "template.brokerContainer": Edit({"nobodys": 1}, "nobodys"),
    "template.persistentVolumeClaim": Edit(NO_LABEL),
    "template.brokersService": Edit(NO_FIELD, "nobodys"),
    "template.bootstrapService": Edit(NO_FIELD, "nobodys"),
    "template.configMap": Edit(NO_LABEL),
    "template.serviceAccount": Edit(NO_LABEL, "ServiceAccount"),
    "template.podDisruptionBudget": Edit(NO_FIELD, "nobodys"),
    "template.networkPolicy": Edit(NO_FIELD, "nobodys"),
    "template.podMonitor": Edit(NO_FIELD),
    "rebalance": Edit("Sometimes", "Manual"),
    "lagExporter.topicRegex": Edit("(", "topicRegex"),
    "lagExporter.topicExcludeRegex": Edit("(", "topicExcludeRegex"),
    "lagExporter.groupRegex": Edit("(", "groupRegex"),
    "lagExporter.groupExcludeRegex": Edit("(", "groupExcludeRegex"),
    "lagExporter.image": Edit(NOWHERE),
    "lagExporter.resources": Edit({"requests": {"memory": "1Gi"}, "limits": {"memory": "96Mi"}}, "memory"),
    "lagExporter.template": Edit({"container": {"nobodys": 1}}, "nobodys"),
    "metrics": Edit({"tokenSecret": {"name": "nobodys", "key": "token"}}, "the brokers have no certificates"),
    "maintenance.job": Edit("nobodys", "archive"),
    "maintenance.options": Edit({"report": "/nowhere/a"}, "on one of the run's volumes"),
    "maintenance.catalog": Edit({"type": "rest"}, "has no archive"),
    "maintenance.namespace": Edit("tables", "has no archive"),
    "maintenance.backend": Edit("Kubeflow", "SparkApplication"),
    "maintenance.executors": Edit(-1, "0"),
    "maintenance.driver": Edit({"resources": {"limits": {"memory": "1Gi"}}}, "at most 1Gi"),
    "maintenance.executor": Edit({"resources": {"limits": {"memory": "1Gi"}}}, "at most 1Gi"),
    "maintenance.template": Edit({"pod": {"spec": {"affinity": {"nobodys": {}}}}}, "nobodys"),
    "maintenance.volumes": Edit([], "on one of the run's volumes"),
    "maintenance.eventLogs": Edit({"claimName": "reports", "mountPath": "/reports"}, "another path"),
    "maintenance.sparkConf": Edit({"spark.master": "local"}, "remove the setting"),
    "maintenance.env": Edit([{"name": "SPARK_HOME", "value": "a"}], "SPARK_HOME"),
    "maintenance.backoffLimit": Edit(101, "100"),
    "maintenance.activeDeadlineSeconds": Edit(0, "1"),
    "maintenance.ttlSecondsAfterFinished": Edit(-1, "0"),
    "maintenance.name": Edit("A B", "name"),
    "maintenance.schedule": Edit("61 3 * * *", "schedule"),
    "maintenance.timeZone": Edit("Mars/Base", "timeZone"),
    "maintenance.suspend": Edit(True),
    "maintenance.concurrencyPolicy": Edit("Queue", "Forbid"),
    "maintenance.startingDeadlineSeconds": Edit(1, "10"),
    "maintenance.maxAgeSeconds": Edit(1, "60"),
    "maintenance.successfulJobsHistoryLimit": Edit(-1, "0"),
    "maintenance.failedJobsHistoryLimit": Edit(-1, "0"),
    "deletionPolicy": Edit("Keep", "Retain"),
    "pause": Edit(True),
}


def fields_of(kind: type[Struct] = ClusterSpec, prefix: str = "") -> Iterator[str]:
    """Yield the paths of all fields that are edited."""
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    for field in described.fields:
        part = next((each for each in _structs(field.type) if each in PARTS), None)
        if part is None:
            yield f"{prefix}{field.encode_name}"
        else:
            yield from fields_of(part, f"{prefix}{field.encode_name}.")


def _structs(kind: inspect.Type) -> Iterator[type[Struct]]:
    """Yield the types in a field: itself, in a list, or optional."""
    if isinstance(kind, inspect.Metadata):
        yield from _structs(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _structs(each)
    elif isinstance(kind, inspect.VarTupleType):
        yield from _structs(kind.item_type)
    elif isinstance(kind, inspect.StructType):
        yield kind.cls


def edited(spec: JsonObject, field: str, value: Any) -> JsonObject:
    """Return the spec with another value in that field; in a list, in its first entry."""
    after = deepcopy(spec)
    place: Any = after
    *steps, last = field.split(".")
    for step in steps:
        place = place.setdefault(step, {})
        place = place[0] if isinstance(place, list) else place
    place[last] = value
    return after
