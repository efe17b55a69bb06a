"""`barnabas jobs driver`: what a pod runs that `spark-submit` has made, which Kubeflow's Spark operator calls.

Spark would start a JVM that runs a file of Python. The arguments after that file are those of `barnabas jobs` instead:
the driver is the same as in a pod that Kubernetes started, and makes its executors itself.
"""

from collections.abc import MutableMapping, Sequence
from typing import Final

from barnabas_jobs.planning.errors import BadOption

OF_SUBMISSION: Final = ("SPARK_APPLICATION_ID", "SPARK_CONF_DIR", "SPARK_DRIVER_BIND_ADDRESS", "SPARK_LOCAL_DIRS")
"""Variables of the JVM that is not started. Executors would mount the local folders over those of their template."""


def submitted_words(words: Sequence[str]) -> Sequence[str]:
    """The arguments of `barnabas jobs`. Raises BadOption if they do not run a job."""
    if not words or words[0] != "run":
        raise BadOption(f"the submitted arguments are {' '.join(words)!r}; allowed: those of `barnabas jobs run`")
    return words


def forget_submission(environment: MutableMapping[str, str]) -> None:
    """Remove what the submission left in the environment, before Spark reads it."""
    for name in OF_SUBMISSION:
        environment.pop(name, None)
