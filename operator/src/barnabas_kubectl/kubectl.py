"""Runs kubectl, which knows the cluster, the namespace and the credentials of its user."""

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

JsonObject = dict[str, Any]
OPERATOR: Final = "app.kubernetes.io/name=barnabas-operator"
"""The label of the operator's Deployment, which the chart sets."""
KINDS: Final = ("clusters", "topics", "users", "consumergroups", "maintenancejobs")
GROUP: Final = "barnabas.dev"
CLUSTER_LABEL: Final = "barnabas.dev/cluster"
TIMEOUT_S: Final = 120.0


class KubectlFailed(Exception):
    """The error of a command of kubectl; the message is the last line that it printed, and says what to do."""


class Kubectl(NamedTuple):
    """kubectl with the options of the plugin's user, such as `--context`."""

    options: tuple[str, ...] = ()

    def bytes(self, *arguments: str) -> bytes:
        """Return what kubectl prints. Raises KubectlFailed."""
        command = ["kubectl", *self.options, *arguments]
        try:
            ended = subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT_S)
        except FileNotFoundError:
            raise KubectlFailed("kubectl is not installed, or not in PATH") from None
        except subprocess.TimeoutExpired:
            raise KubectlFailed(f"`{' '.join(command)}` did not end within {TIMEOUT_S:.0f} s") from None
        if ended.returncode != 0:
            printed = ended.stderr.decode(errors="replace").strip().splitlines()
            raise KubectlFailed(printed[-1] if printed else f"`{' '.join(command)}` failed: exit {ended.returncode}")
        return ended.stdout

    def json(self, *arguments: str) -> JsonObject:
        """Return the object that kubectl prints as JSON. Raises KubectlFailed."""
        found: JsonObject = json.loads(self.bytes(*arguments, "-o", "json"))
        return found

    def items(self, *arguments: str) -> list[JsonObject]:
        """Return the items of a list that kubectl prints as JSON. Raises KubectlFailed."""
        found: list[JsonObject] = self.json("get", *arguments).get("items", [])
        return found

    def become(self, arguments: Sequence[str]) -> NoReturn:
        """Replace this process by kubectl, so that signals and the terminal are kubectl's."""
        try:
            os.execvp("kubectl", ["kubectl", *self.options, *arguments])
        except FileNotFoundError:
            raise KubectlFailed("kubectl is not installed, or not in PATH") from None

    def namespace(self) -> str:
        """Return the namespace of the current context. Raises KubectlFailed."""
        found = self.bytes("config", "view", "--minify", "-o", "jsonpath={..namespace}").decode()
        return found or "default"


class ClusterName(NamedTuple):
    """The namespace and the name of a Cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def cluster_of(kubectl: Kubectl, namespace: str, name: str | None) -> ClusterName:
    """Return the Cluster of a name, or the only one of the namespace. Raises KubectlFailed."""
    if name is not None:
        kubectl.bytes("get", f"clusters.{GROUP}", name, "-n", namespace, "-o", "name")
        return ClusterName(namespace, name)
    found = [each["metadata"]["name"] for each in kubectl.items(f"clusters.{GROUP}", "-n", namespace)]
    if len(found) != 1:
        known = f"choose one with --cluster: {', '.join(found)}" if found else "choose another namespace with -n"
        raise KubectlFailed(f"the namespace {namespace} has {len(found)} Clusters; {known}")
    return ClusterName(namespace, found[0])


def operator_of(kubectl: Kubectl, given: str | None) -> tuple[str, str]:
    """Return the namespace and the name of the operator's Deployment. Raises KubectlFailed."""
    if given is not None:
        namespace, _, name = given.partition("/")
        if not namespace or not name:
            raise KubectlFailed(f"--operator {given}: it must be NAMESPACE/NAME of the operator's Deployment")
        return namespace, name
    try:
        found = kubectl.items("deployments", "-A", "-l", OPERATOR)
    except KubectlFailed as error:
        raise KubectlFailed(f"the operator was not found: {error}; name it with --operator NAMESPACE/NAME") from None
    names = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found]
    if len(names) != 1:
        known = ", ".join("/".join(each) for each in names) or "none"
        raise KubectlFailed(f"there must be one operator, and kubectl lists {known}: use --operator NAMESPACE/NAME")
    return names[0]
