"""A driver that uses the JVM of another process: it starts within a second, and its work there survives its death.

Tests run it as a program: `attached_driver.py JOB NAME=VALUE ...` in the `environment` of a session. It prints `begun`
before the job begins, and `ended` after it; its exit code is that of `barnabas jobs run`.
"""

import sys
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from barnabas_jobs.app.run import JOBS, ending_of
from barnabas_jobs.planning.options import parse


def environment(spark: SparkSession) -> Mapping[str, str]:
    """Return the variables with which the driver finds this session's JVM."""
    parameters = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
    return {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}


def attached() -> SparkSession:
    """Return the context that runs in that JVM, for this process, too."""
    gateway = launch_gateway()
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java_context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(running)
    conf = SparkConf(_jconf=java_context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=java_context, conf=conf))


if __name__ == "__main__":
    job = JOBS[sys.argv[1]].load()
    session = attached()
    print("begun", flush=True)
    options = parse(job.Options, sys.argv[2:])
    ending = ending_of(job.run(session, options))
    print("ended", flush=True)
    sys.exit(ending.exit)
