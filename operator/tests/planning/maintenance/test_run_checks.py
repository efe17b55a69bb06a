"""The problems of a run, with the field, its value and what is allowed."""

from typing import Any

import pytest

from barnabas_operator.planning.maintenance.run_checks import run_problems
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of
from harness.maintenance_world import ARCHIVE, KIND
from harness.worker_world import resource

VOLUME = {"name": "a", "mountPath": "/archive", "claimName": "archives"}

IN_BUCKET = {**ARCHIVE, "archive": "s3a://archives/flights"}
REST = {"type": "rest", "uri": "http://catalog:8181", "s3.endpoint": "http://s3:9000"}
DAY_1, DAY_2 = "2026-01-31T06:30:00Z", "2026-02-01T06:30:00+01:00"


def problems(**spec: Any) -> list[str]:
    body = resource(KIND, "a", **{"job": "archive", "options": ARCHIVE, "volumes": [VOLUME], **spec})
    return list(run_problems(resource_of(MaintenanceJob, body).spec))


def test_a_run_with_the_required_options_of_its_job_has_no_problem() -> None:
    assert not problems(options=IN_BUCKET, catalog=REST, namespace="lake.raw", volumes=[])
    assert not problems(catalog={"type": "sql", "uri": "sqlite:////archive/tables.db"})
    assert not problems(executors=2, options={**ARCHIVE, "commit_records": "1000", "delete_archived": "true"})
    assert not problems(job="retention-audit", options={"topics": "flights,orders", "report": "/archive/x"})
    assert not problems(job="lag-history", options={"report": "/archive/r", "max_seconds": "0.5", "from_time": DAY_1})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"job": "archiv"}, "spec.job is archiv; allowed: archive, "),
        (
            {"volumes": []},
            (
                "options.archive is /archive/flights; "
                "allowed: a folder on one of the run's volumes (the run has no volume yet; add"
            ),
        ),
        ({"options": {**ARCHIVE, "archive": "archive/a"}}, "archive is archive/a; allowed: a folder on one of the"),
        (
            {"options": {**ARCHIVE, "archive": "/tmp/a"}},
            "archive is /tmp/a; allowed: a folder on one of the run's volumes",
        ),
        (
            {"options": {**ARCHIVE, "archive": "/archive/../a"}},
            "/../a; allowed: a folder on one of the run's volumes (/arch",
        ),
        ({"options": {"topic": "flights"}}, "spec.options.archive is missing; allowed: a folder"),
        (
            {"options": IN_BUCKET},
            (
                "spec.options.archive is s3a://archives/flights, and spec.catalog is not given; "
                "allowed: s3a://BUCKET/FOLDER together with catalog.type"
            ),
        ),
        ({"catalog": {"type": "hive"}}, "spec.catalog.type is 'hive'; allowed: spec.catalog.PROPERTY=VALUE, where "),
        ({"catalog": {"a b": "x"}}, "spec.catalog.a b is 'x'; allowed: spec.catalog.PROPERTY=VALUE, where "),
        (
            {"catalog": {**REST, "s3.secret-access-key": "x"}},
            (
                "spec.catalog.s3.secret-access-key has a secret; remove the property, and set the variable "
                "PYICEBERG_CATALOG__BARNABAS__S3__SECRET_ACCESS_KEY in spec.env by secretKeyRef"
            ),
        ),
        (
            {"catalog": {"type": "sql", "uri": "postgresql://me:secret@db/tables"}},
            "spec.catalog.uri has a secret; remove the property, and set the variable PYICEBERG_CATALOG__BARNABAS__URI",
        ),
        (
            {"options": {**ARCHIVE, "namespace": "lake"}},
            "spec.options.namespace is lake; remove the option, and set the field spec.namespace",
        ),
        (
            {"options": {**ARCHIVE, "catalog.type": "sql"}},
            "spec.options.catalog.type is sql; remove the option, and set the field spec.catalog",
        ),
        (
            {"job": "skew", "options": {"report": "/archive/r"}, "namespace": "lake"},
            "spec.namespace is given; remove the field, because the job skew has no archive",
        ),
        ({"options": {**ARCHIVE, "topics": "a"}}, "spec.options.topics is not an option of archive; allowed: topic, "),
        ({"options": {**ARCHIVE, "bootstrap": "x:1"}}, "spec.options.bootstrap is x:1; remove the option"),
        (
            {"job": "audit", "options": {"log_dirs": "0:/a", "report": "/r", "bootstrap": "x:1"}},
            "spec.options.bootstrap is not an option of audit; allowed: log_dirs, ",
        ),
        ({"options": {**ARCHIVE, "topic": "a b"}}, "spec.options.topic is 'a b'; allowed: a topic's name"),
        ({"options": {**ARCHIVE, "commit_records": "0"}}, "commit_records is '0'; allowed: a whole number, 1 or more"),
        ({"options": {**ARCHIVE, "delete_archived": "yes"}}, "delete_archived is 'yes'; allowed: true or false"),
        ({"job": "retention-audit", "options": {"topics": "a,b c", "report": "/r"}}, "spec.options.topics is 'a,b c'"),
        ({"job": "verify", "options": {**ARCHIVE, "match": "time"}}, "match is 'time'; allowed: offset or order"),
        ({"options": {**ARCHIVE, "commit_records": "9" * 5000}}, "allowed: a whole number, 1 or more"),
        (
            {"job": "restore", "options": {**ARCHIVE, "from_time": "yesterday"}},
            "allowed: a time with its time zone, such as 20",
        ),
        (
            {"job": "restore", "options": {**ARCHIVE, "from_time": "2026-01-31T00:00:00"}},
            "allowed: a time with its time zone",
        ),
        (
            {"job": "restore", "options": {**ARCHIVE, "from_time": DAY_2, "to_time": DAY_1}},
            f"from_time is {DAY_2}, and spec.options.to_time is {DAY_1}; allowed: from_time < to_time",
        ),
        (
            {"job": "restore", "options": {**ARCHIVE, "replicas": "3"}},
            "replicas is 3, and spec.options.create is not given; allowed: replicas together with create=true",
        ),
        (
            {"options": {**ARCHIVE, "continuous": "true", "delete_archived": "true"}},
            "delete_archived is true, and spec.options.continuous is true; allowed: true for only one of these",
        ),
        (
            {"options": {**ARCHIVE, "schema": "/archive/s", "schema_registry": "http://a:8081"}},
            "schema is /archive/s, and spec.options.schema_registry is http://a:8081; allowed: only one of these",
        ),
        (
            {"options": {**ARCHIVE, "schema_registry": "http://me:secret@registry"}},
            "allowed: the address of a schema registry without a user",
        ),
        (
            {"job": "lag-history", "options": {"report": "/archive/r", "max_seconds": "many"}},
            "max_seconds is 'many'; allowed: a number of seconds, 0 or more",
        ),
        (
            {"job": "lag-history", "options": {"report": "/archive/r", "max_seconds": "nan"}},
            "allowed: a number of seconds, 0 or more",
        ),
        (
            {"env": [{"name": "SPARK_LOCAL_DIRS", "value": "/x"}]},
            "spec.env has the variable SPARK_LOCAL_DIRS, which the operator or Spark sets",
        ),
        (
            {"env": [{"name": "BARNABAS_POD_NAME", "value": "x"}]},
            "spec.env has the variable BARNABAS_POD_NAME, which the operator or Spark sets",
        ),
        ({"volumes": [{**VOLUME, "name": "tmp"}]}, "spec.volumes has a volume tmp, but the operator reserves the name"),
        (
            {"volumes": [{**VOLUME, "name": "event-logs"}]},
            "spec.volumes has a volume event-logs, but the operator reserves the name",
        ),
        (
            {"volumes": [{**VOLUME, "name": "executor-pod"}]},
            "spec.volumes has a volume executor-pod, but the operator reserves the name",
        ),
        (
            {"volumes": [{**VOLUME, "mountPath": "/etc/barnabas"}]},
            "spec.volumes a is mounted at /etc/barnabas, which another volume uses",
        ),
        (
            {"volumes": [{**VOLUME, "mountPath": "/tmp"}]},
            "spec.volumes a is mounted at /tmp, which another volume uses; choose another path",
        ),
        (
            {"volumes": [VOLUME, {**VOLUME, "name": "b"}]},
            "spec.volumes b is mounted at /archive, which another volume uses; choose another path",
        ),
        (
            {"volumes": [{**VOLUME, "mountPath": "/event-logs"}], "eventLogs": {"claimName": "history"}},
            "spec.volumes a is mounted at /event-logs, which another volume uses; choose another path",
        ),
        ({"env": [{"name": "A"}]}, "spec.env: the variable A needs exactly one of value and secretKeyRef"),
        ({"sparkConf": {"park.x": "1"}}, "spec.sparkConf has park.x; allowed: names that begin with spark."),
        ({"sparkConf": {"spark.barnabas.run": "x"}}, "spec.sparkConf.spark.barnabas.run is x; remove the setting"),
        ({"sparkConf": {"spark.authenticate": "no"}}, "spec.sparkConf.spark.authenticate is no; remove the setting"),
        ({"sparkConf": {"spark.authenticate.secret": "x"}}, "spec.sparkConf.spark.authenticate.secret is x; remove"),
        ({"sparkConf": {"spark.network.crypto.enabled": "no"}}, "spark.network.crypto.enabled is no; remove"),
        ({"sparkConf": {"spark.ssl.rpc.enabled": "true"}}, "spec.sparkConf.spark.ssl.rpc.enabled is true; remove"),
        (
            {"sparkConf": {"spark.kubernetes.namespace": "x"}},
            "spec.sparkConf.spark.kubernetes.namespace is x; remove the setting",
        ),
        (
            {"driver": {"resources": {"requests": {"memory": "512Mi"}, "limits": {"memory": "512Mi"}}}},
            "spec.driver.resources.limits.memory is 512Mi; allowed: 1Gi or more",
        ),
        (
            {"executor": {"resources": {"limits": {"memory": "1Gi"}}}},
            "spec.executor.resources.requests.memory is 2Gi; allowed: at most 1Gi, the value in limits",
        ),
    ],
)
def test_each_fault_names_its_field_its_value_and_what_is_allowed(spec: dict[str, Any], message: str) -> None:
    found = problems(**spec)
    assert any(message in each for each in found), found
