"""The Job, the Service and the rights of a run of a maintenance job."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from barnabas_operator.manifests.maintenance_run import driver_job, driver_service, run_client, run_policy
from barnabas_operator.planning.maintenance.run_checks import spark_conf
from barnabas_operator.planning.object_names import FOLDER, shortened_name
from barnabas_operator.planning.object_names import VOLUME as VOLUME_OF_CLIENT
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_run import JOB_TABLE, MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of
from harness.maintenance_world import ARCHIVE, CLUSTER, KIND
from harness.worker_world import resource

ROOT: Final = Path(__file__).parents[3]
SECRET = {"name": "S3_KEY", "secretKeyRef": {"name": "s3", "key": "secret"}}
VOLUME = {"name": "archive", "mountPath": "/archive", "claimName": "archives"}


def run_of(name: str = "a", **spec: Any) -> MaintenanceJob:
    body = resource(KIND, name, **{"job": "archive", "options": ARCHIVE, **spec})
    return resource_of(MaintenanceJob, {**body, "metadata": {**body["metadata"], "uid": "u"}})


def job_of(run: MaintenanceJob, cluster: Cluster = CLUSTER) -> dict[str, Any]:
    return driver_job(run, "one", run_client(run, cluster), "jobs:dev")


def command_of(run: MaintenanceJob) -> list[str]:
    command: list[str] = job_of(run)["spec"]["template"]["spec"]["containers"][0]["command"]
    return command


def test_a_driver_without_executors_does_the_work_in_its_own_process() -> None:
    command = command_of(run_of())
    assert command[:4] == ["barnabas", "jobs", "run", "archive"]
    assert "--option=bootstrap=one-broker.air.svc:9091" in command
    assert "--option=topic=flights" in command
    assert "--master=local[1]" in command
    assert not [each for each in command if "spark.kubernetes" in each]


def test_a_catalog_and_a_namespace_become_options_of_the_job() -> None:
    command = command_of(run_of(catalog={"type": "rest", "uri": "http://$(HOME)"}, namespace="lake"))
    told = [word for word in command if "catalog" in word or "namespace" in word]
    assert told == ["--option=catalog.type=rest", "--option=catalog.uri=http://$$(HOME)", "--option=namespace=lake"]


@pytest.mark.parametrize(
    ("resources", "cores"),
    [
        ({}, 1),
        ({"requests": {"memory": "2Gi"}}, 1),
        ({"requests": {"cpu": "2500m"}}, 2),
        ({"requests": {"cpu": 1}, "limits": {"cpu": 4}}, 4),
        ({"limits": {"cpu": "300m"}, "requests": {}}, 1),
    ],
)
def test_a_driver_without_executors_runs_as_many_tasks_as_it_has_cores(resources: dict[str, Any], cores: int) -> None:
    assert f"--master=local[{cores}]" in command_of(run_of(driver={"resources": resources}))


@pytest.mark.parametrize("executors", [0, 1])
def test_all_attempts_of_a_run_have_its_uid(executors: int) -> None:
    assert "--conf=spark.barnabas.run=u" in command_of(run_of(executors=executors))


@pytest.mark.parametrize("job", sorted(JOB_TABLE))
def test_a_job_gets_only_its_own_options(job: str) -> None:
    known = JOB_TABLE[job].options
    needed = {name: "x" for name, each in known.items() if each.required and name != "bootstrap"}
    words = [each for each in command_of(run_of(job=job, options=needed)) if each.startswith("--option=")]
    told = [word.removeprefix("--option=").partition("=")[0] for word in words]
    assert sorted(told) == sorted(name for name, each in known.items() if each.required)


def test_executors_get_the_drivers_address_and_their_resources() -> None:
    run = run_of(executors=2, volumes=[VOLUME], env=[{"name": "A", "value": "b"}, SECRET])
    conf = spark_conf(run, "one", "jobs:dev")
    assert conf["spark.driver.host"] == "a-driver.air.svc"
    assert conf["spark.kubernetes.driver.pod.name"] == "$(BARNABAS_POD_NAME)"
    assert (conf["spark.executor.instances"], conf["spark.executor.cores"]) == ("2", "1")
    assert int(conf["spark.executor.memory"][:-1]) + int(conf["spark.executor.memoryOverhead"][:-1]) == 2048
    assert conf["spark.kubernetes.executor.volumes.persistentVolumeClaim.archive.options.claimName"] == "archives"
    assert conf["spark.executorEnv.A"] == "b"
    assert conf["spark.kubernetes.executor.secretKeyRef.S3_KEY"] == "s3:secret"
    assert "--master=k8s://https://kubernetes.default.svc:443" in command_of(run)


PLACED = {
    "nodeSelector": {"disk": "local"},
    "tolerations": [{"key": "jobs", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
}


def executor_template(run: MaintenanceJob) -> dict[str, Any]:
    """Return the file that the driver's pod has at the path that Spark gets for the template."""
    pod = job_of(run)["spec"]["template"]
    path = next(each for each in command_of(run) if "podTemplateFile=" in each).partition("podTemplateFile=")[2]
    (mount,) = (each for each in pod["spec"]["containers"][0]["volumeMounts"] if path.startswith(each["mountPath"]))
    (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])
    (item,) = volume["downwardAPI"]["items"]
    assert f"{mount['mountPath']}/{item['path']}" == path
    ((name, text),) = pod["metadata"]["annotations"].items()
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{name}']"
    found: dict[str, Any] = json.loads(text)
    return found


SECURED: Final = resource_of(Cluster, resource("Cluster", "one", listeners=[{"name": "a", "tls": True}]))


def test_driver_and_executors_of_a_secured_cluster_mount_the_certificate_that_the_command_names() -> None:
    driver = job_of(run_of(executors=1), SECURED)["spec"]["template"]
    (text,) = driver["metadata"]["annotations"].values()
    for pod in (driver["spec"], json.loads(text)["spec"]):
        (volume,) = (each for each in pod["volumes"] if each["name"] == VOLUME_OF_CLIENT)
        assert volume["secret"] == {"secretName": "one-maintenance", "defaultMode": 0o440}
        assert pod["securityContext"]["fsGroup"] == 10001
        (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == VOLUME_OF_CLIENT)
        assert (mount["mountPath"], "subPath" in mount) == (FOLDER, False)
    assert f"--command-config={FOLDER}/client.properties" in driver["spec"]["containers"][0]["command"]


def test_a_job_that_reads_only_files_gets_no_certificate() -> None:
    options = {"log_dirs": "0:/disk", "report": "s3a://reports"}
    made = job_of(run_of(job="audit", options=options, executors=1), SECURED)
    assert "barnabas-client" not in json.dumps(made)


def test_the_operators_executor_template_equals_that_of_the_jobs_image() -> None:
    of_image = YAML(typ="safe").load(ROOT / "images" / "executor-pod.yaml")
    assert executor_template(run_of(executors=1)) == of_image


def test_the_template_places_the_driver_and_its_executors() -> None:
    run = run_of(executors=1, template={"pod": {"spec": PLACED}})
    driver = job_of(run)["spec"]["template"]["spec"]
    for pod in (driver, executor_template(run)["spec"]):
        assert {name: pod[name] for name in PLACED} == PLACED
    alone = job_of(run_of(template={"pod": {"spec": {"nodeSelector": {"disk": "local"}}}}))["spec"]["template"]
    assert alone["spec"]["nodeSelector"] == {"disk": "local"}
    assert not alone["spec"].keys() & {"tolerations", "affinity"}
    assert "annotations" not in alone["metadata"]


def test_a_driver_sets_no_spark_local_dirs_over_those_of_the_executor_template() -> None:
    (container,) = job_of(run_of(executors=1))["spec"]["template"]["spec"]["containers"]
    assert "SPARK_LOCAL_DIRS" not in [each["name"] for each in container["env"]]


def expanded(text: str, variables: dict[str, str]) -> str:
    """Expand an argument or a variable as Kubernetes does: $(NAME) is a known variable, and $$ is $."""
    return re.sub(
        r"\$(\$|\(([^()]*)\))",
        lambda found: "$" if found[1] == "$" else variables.get(found[2], found[0]),
        text,
    )


@pytest.mark.parametrize("text", ["$(HOME)", "$$(HOME)", "pa$$word", "a$5", "$", "$$$(HOME)"])
def test_kubernetes_expands_no_variables_in_the_text_of_users(text: str) -> None:
    run = run_of(
        executors=1,
        options={"topic": "flights", "archive": f"/a/{text}"},
        sparkConf={"spark.x": text},
        env=[{"name": "A", "value": text}],
        volumes=[{**VOLUME, "mountPath": f"/{text}"}],
    )
    variables = {"HOME": "/tmp", "BARNABAS_POD_NAME": "a-driver-x1"}
    told = {expanded(each, variables) for each in command_of(run)}
    mounts = "spark.kubernetes.executor.volumes.persistentVolumeClaim.archive.mount.path"
    assert {f"--option=archive=/a/{text}", f"--conf=spark.x={text}", f"--conf={mounts}=/{text}"} <= told
    assert "--conf=spark.kubernetes.driver.pod.name=a-driver-x1" in told
    (container,) = job_of(run)["spec"]["template"]["spec"]["containers"]
    (of_driver,) = (each["value"] for each in container["env"] if each["name"] == "A")
    assert expanded(of_driver, variables) == text
    prefix = "--conf=spark.executorEnv.A="
    (of_executor,) = (each.removeprefix(prefix) for each in told if each.startswith(prefix))
    assert expanded(of_executor, variables) == text, "Spark passes it to pods, where Kubernetes expands it once more"


def test_faults_of_options_and_data_fail_the_job_and_disruptions_do_not_count() -> None:
    spec = job_of(run_of(backoffLimit=5, activeDeadlineSeconds=60))["spec"]
    fails, ignores, _ = spec["podFailurePolicy"]["rules"]
    assert (fails["action"], fails["onExitCodes"]["values"]) == ("FailJob", [2, 3])
    assert ignores["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["suspend"]) == (5, 60, True)


def test_a_driver_stopped_by_sigterm_restarts_without_counting_as_a_failure() -> None:
    rules = job_of(run_of())["spec"]["podFailurePolicy"]["rules"]
    (ignores,) = (each for each in rules if 143 in each.get("onExitCodes", {}).get("values", ()))
    assert (ignores["action"], ignores["onExitCodes"]["operator"]) == ("Ignore", "In")
    assert ignores["onExitCodes"]["containerName"] == "driver"


def test_a_driver_that_fails_after_long_success_restarts_without_counting_as_a_failure() -> None:
    rules = job_of(run_of())["spec"]["podFailurePolicy"]["rules"]
    (ignores,) = (each for each in rules if 75 in each.get("onExitCodes", {}).get("values", ()))
    assert ignores["action"] == "Ignore"


def test_event_logs_have_their_own_claim() -> None:
    run = run_of(eventLogs={"claimName": "history"})
    pod = job_of(run)["spec"]["template"]["spec"]
    assert {"name": "event-logs", "mountPath": "/event-logs", "readOnly": False} in pod["containers"][0]["volumeMounts"]
    assert "--conf=spark.eventLog.dir=file:/event-logs" in command_of(run)


def test_the_service_of_a_run_selects_only_its_driver() -> None:
    service, job = driver_service(run_of(), "one"), job_of(run_of())
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["selector"]["barnabas.dev/maintenance-role"] == "driver"
    assert "barnabas.dev/cluster" not in labels
    assert job["metadata"]["ownerReferences"][0]["uid"] == "u"


def test_only_pods_of_a_run_connect_to_its_pods() -> None:
    policy, job = run_policy(run_of(), "one"), job_of(run_of())
    (ingress,) = policy["spec"]["ingress"]
    (peer,) = ingress["from"]
    chosen = policy["spec"]["podSelector"]["matchLabels"]
    assert peer == {"podSelector": {"matchLabels": chosen}}
    assert chosen.items() <= job["spec"]["template"]["metadata"]["labels"].items()
    executor = {
        name.partition(".label.")[2]: value for name, value in spark_conf(run_of(executors=1), "one", "i").items()
    }
    assert chosen.items() <= executor.items()
    other = job_of(run_of("b"))["spec"]["template"]["metadata"]["labels"]
    assert not chosen.items() <= other.items()


def test_long_names_are_shortened_and_stay_distinct() -> None:
    one, other = shortened_name("a" * 60 + "1", 47), shortened_name("a" * 60 + "2", 47)
    assert len(one) == len(other) == 47
    assert one != other
    assert shortened_name("short", 47) == "short"
