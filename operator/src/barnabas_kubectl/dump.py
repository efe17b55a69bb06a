"""`kubectl barnabas dump`: a support archive without secrets.

Secrets are never read. In all other objects, values under names such as `password` are replaced.
"""

import io
import json
import re
import tarfile
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas_kubectl.kubectl import CLUSTER_LABEL, GROUP, KINDS, ClusterName, JsonObject, Kubectl, KubectlFailed

OWNED: Final = ("statefulsets", "pods", "services", "configmaps", "persistentvolumeclaims", "poddisruptionbudgets")
OWNED_TOO: Final = ("deployments", "networkpolicies", "jobs", "cronjobs")
LOG_BYTES_MAX: Final = 4 * 1024 * 1024
METRICS_PORTS: Final = {"broker": 9404, "lag-exporter": 9308}
REMOVED: Final = "[removed]"
_SECRET_NAME: Final = re.compile(r"password|passwd|secret|token|jaas|credential|private|\bkey$", re.IGNORECASE)
_SECRET_LINE: Final = re.compile(
    r"(?im)^(\s*[^\s=:#]*(?:password|secret|token|jaas|credential|private)[^\s=:]*\s*[=:]\s*).+$"
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Entry(NamedTuple):
    """A file of the archive; `problem` says why it is empty, if it is."""

    name: str
    content: bytes
    problem: str | None = None


def entries(kubectl: Kubectl, cluster: ClusterName, operator: tuple[str, str] | None) -> Iterator[Entry]:
    """Yield the files of the archive as they are read: what cannot be read has its reason instead."""
    space = ("-n", cluster.namespace)
    yield _read("version.json", lambda: _pretty(kubectl.json("version")))
    for kind in KINDS:
        yield _objects(kubectl, f"resources/{kind}.json", f"{kind}.{GROUP}", *space)
    yield _objects(kubectl, "resources/metadata.json", "statedocuments.internal.barnabas.dev", *space)
    for kind in (*OWNED, *OWNED_TOO):
        yield _objects(kubectl, f"objects/{kind}.json", kind, *space, "-l", f"{CLUSTER_LABEL}={cluster.name}")
    yield _objects(kubectl, "events.json", "events", *space)
    yield _read("nodes.txt", lambda: kubectl.bytes("get", "nodes", "-o", "wide"))
    yield from _of_pods(kubectl, cluster)
    if operator is not None:
        namespace, name = operator
        yield _log(kubectl, "logs/operator.log", f"deployment/{name}", "-n", namespace)
        yield _log(kubectl, "logs/operator-previous.log", f"deployment/{name}", "-n", namespace, "--previous")


def _of_pods(kubectl: Kubectl, cluster: ClusterName) -> Iterator[Entry]:
    space = ("-n", cluster.namespace)
    try:
        pods = kubectl.items("pods", *space, "-l", f"{CLUSTER_LABEL}={cluster.name}")
    except KubectlFailed as error:
        yield Entry("pods", b"", str(error))
        return
    for pod in pods:
        name = pod["metadata"]["name"]
        yield _read(f"describe/{name}.txt", lambda name=name: _described(kubectl, name, *space))
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            part = container["name"]
            yield _log(kubectl, f"logs/{name}-{part}.log", name, *space, "-c", part)
            if container.get("restartCount"):
                yield _log(kubectl, f"logs/{name}-{part}-previous.log", name, *space, "-c", part, "--previous")
            if part in METRICS_PORTS:
                path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}:{METRICS_PORTS[part]}/proxy/metrics"
                yield _read(f"metrics/{name}.txt", lambda path=path: kubectl.bytes("get", "--raw", path))


def _objects(kubectl: Kubectl, name: str, *arguments: str) -> Entry:
    return _read(name, lambda: _pretty(without_secrets(kubectl.json("get", *arguments))))


def _described(kubectl: Kubectl, name: str, *space: str) -> bytes:
    text = kubectl.bytes("describe", "pod", name, *space).decode(errors="replace")
    return str(without_secrets(text)).encode()


def _log(kubectl: Kubectl, name: str, *arguments: str) -> Entry:
    return _read(name, lambda: kubectl.bytes("logs", *arguments, f"--limit-bytes={LOG_BYTES_MAX}", "--timestamps"))


def _read(name: str, read: Any) -> Entry:
    try:
        return Entry(name, read())
    except KubectlFailed as error:
        return Entry(name, b"", str(error))


def _pretty(found: JsonObject) -> bytes:
    return json.dumps(found, indent=1).encode()


def without_secrets(found: Any, name: str = "") -> Any:
    """Return a copy of a JSON value in which texts under secret names, and secret lines of files, are replaced."""
    if isinstance(found, dict):
        named = str(found.get("name", "")) if "value" in found else ""  # A variable of a container.
        return {
            key: without_secrets(value, named if key == "value" else key)
            for key, value in found.items()
            if key != _LAST_APPLIED
        }
    if isinstance(found, list):
        return [without_secrets(each, name) for each in found]
    if isinstance(found, str):
        return REMOVED if _is_secret(name) else _SECRET_LINE.sub(rf"\1{REMOVED}", found)
    return found


def _is_secret(name: str) -> bool:
    """True if a value of this name may be secret. The name of a Secret is not secret."""
    return _SECRET_NAME.search(name) is not None and not name.endswith(("Name", "name", "Ref", "Policy", "Token"))


def archive(found: list[Entry], folder: str, made_s: int) -> bytes:
    """Return a tar.gz of the files in a folder, and of CONTENTS.txt, which lists them; `made_s` is their time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for each in (Entry("CONTENTS.txt", contents(found).encode()), *found):
            if each.problem is None:
                info = tarfile.TarInfo(f"{folder}/{each.name}")
                info.size, info.mtime = len(each.content), made_s
                tar.addfile(info, io.BytesIO(each.content))
    return out.getvalue()


def contents(found: list[Entry]) -> str:
    """Return a line for each file: its bytes and its name, or why it is not there."""
    lines = [f"{len(each.content):>10}  {each.name}" for each in found if each.problem is None]
    missing = [f"   missing  {each.name}: {each.problem}" for each in found if each.problem is not None]
    return "\n".join([*lines, *missing, ""])
