"""The reading of a Cluster from the API server, with the problems in its spec."""

from barnabas_operator.planning.brokers.pod_properties import pod_problems
from barnabas_operator.planning.refusal import INVALID_CONFIG, INVALID_SPEC, Refusal
from barnabas_operator.resources.api_objects import InvalidResource, readable_part, resource_of
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json


def read_cluster(body: Json) -> tuple[Cluster, Refusal | None]:
    """Return the Cluster and, if its spec is invalid, a Refusal; spec fields that cannot be read are left out."""
    try:
        cluster = resource_of(Cluster, body)
    except InvalidResource as error:
        return readable_part(Cluster, body), Refusal(INVALID_SPEC, str(error))
    problems = [message for _, message in pod_problems(cluster)]
    return cluster, Refusal(INVALID_CONFIG, "; ".join(problems)) if problems else None


def why_left(cluster: Cluster, problem: Refusal | None) -> str:
    """Return a message for the status of the Cluster's resources: why the Cluster is not reconciled, and what to do."""
    name = cluster.metadata.name
    if problem is None:
        return f"Cluster {name} is paused; to end the pause, set spec.pause of the Cluster to false"
    return f"Cluster {name} has a problem that must be fixed first: {problem.message}"
