"""The command of an executor's pod, made of the environment that Spark gives it."""

import pytest

from barnabas_jobs.app.connector import executor_command
from barnabas_jobs.app.main import EXIT_USAGE, main
from barnabas_jobs.planning.errors import BadOption

ENVIRONMENT = {
    "SPARK_HOME": "/opt/spark",
    "SPARK_LOCAL_DIRS": "/var/data/spark-1,/var/data/spark-2",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "archive-exec-7",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{number}": f"-Doption={number}" for number in range(12)},
}


def test_the_command_has_sparks_java_options_in_order_and_all_its_settings() -> None:
    command = executor_command("java", ENVIRONMENT)
    assert [word for word in command if word.startswith("-Doption=")] == [f"-Doption={each}" for each in range(12)]
    assert {"-Djava.io.tmpdir=/var/data/spark-1", "-Xms1024m", "-Xmx1024m"} <= set(command)
    assert command[command.index("-cp") + 1] == "/opt/spark/jars/*"
    told = dict(zip(command[-14::2], command[-13::2], strict=True))
    assert told == {
        "--driver-url": "spark://CoarseGrainedScheduler@driver:7078",
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "archive-exec-7",
    }


def test_a_missing_environment_variable_is_named() -> None:
    without = {name: value for name, value in ENVIRONMENT.items() if name != "SPARK_DRIVER_URL"}
    with pytest.raises(BadOption, match="the environment has no SPARK_DRIVER_URL"):
        executor_command("java", without)


def test_an_executor_that_spark_did_not_start_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["executor"]) == EXIT_USAGE
    assert "only Spark starts executors" in capsys.readouterr().err
