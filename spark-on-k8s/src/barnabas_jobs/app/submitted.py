"""`barnabas jobs driver`, the command of the driver pods that `spark-submit` creates for Kubeflow's Spark operator.

In such a pod Spark usually starts a JVM, and the JVM runs a Python file. This command instead runs the job itself, as
the pods of a MaintenanceJob do. The arguments after the name of the Python file are those of `barnabas jobs`.
"""

from collections.abc import MutableMapping, Sequence
from typing import Final

from barnabas_jobs.planning.errors import BadOption

OF_SUBMISSION: Final = ("SPARK_APPLICATION_ID", "SPARK_CONF_DIR", "SPARK_DRIVER_BIND_ADDRESS", "SPARK_LOCAL_DIRS")
"""The variables that spark-submit sets for its own JVM.

`forget_submission` removes them, because executors would inherit a wrong local folder from SPARK_LOCAL_DIRS.
"""


def submitted_words(words: Sequence[str]) -> Sequence[str]:
    """Return the arguments for `barnabas jobs`. Raises BadOption unless the first argument is `run`."""
    if not words or words[0] != "run":
        raise BadOption(f"the submitted arguments are {' '.join(words)!r}; allowed: `run` and its arguments")
    return words


def forget_submission(environment: MutableMapping[str, str]) -> None:
    """Remove the variables of spark-submit from the environment before Spark reads them."""
    for name in OF_SUBMISSION:
        environment.pop(name, None)
