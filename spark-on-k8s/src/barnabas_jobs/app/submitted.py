"""`barnabas jobs driver`, the command of the driver pods that `spark-submit` creates for Kubeflow's Spark operator.

Usually Spark starts a JVM there, and the JVM runs a Python file. This command takes the arguments after that file as
those of `barnabas jobs`, and runs the driver as in a pod of a Job: the driver itself creates its executors.
"""

from collections.abc import MutableMapping, Sequence
from typing import Final

from barnabas_jobs.planning.errors import BadOption

OF_SUBMISSION: Final = ("SPARK_APPLICATION_ID", "SPARK_CONF_DIR", "SPARK_DRIVER_BIND_ADDRESS", "SPARK_LOCAL_DIRS")
"""The variables that spark-submit sets for its JVM. With them executors would not use the declared local folders."""


def submitted_words(words: Sequence[str]) -> Sequence[str]:
    """Return the arguments for `barnabas jobs`. Raises BadOption if they do not run a job."""
    if not words or words[0] != "run":
        raise BadOption(f"the submitted arguments are {' '.join(words)!r}; allowed: those of `barnabas jobs run`")
    return words


def forget_submission(environment: MutableMapping[str, str]) -> None:
    """Remove the variables of spark-submit from the environment, before Spark reads them."""
    for name in OF_SUBMISSION:
        environment.pop(name, None)
