"""The images in pods: a named user, a read-only root file system, no shell, and all that they need."""

import json
import re

import pytest

from e2e.pods.castle import NAME, Castle
from e2e.pods.providers import Cluster
from local_kubernetes.images import IMAGES
from local_kubernetes.kubectl import PATIENTLY

SECURITY = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
LOOK = """
import importlib.metadata, importlib.util, json, os, pathlib, platform, pwd, ssl, sqlite3, subprocess, sys, time
programs = {each.name for folder in os.environ["PATH"].split(":") for each in pathlib.Path(folder).iterdir()}
sources = [path for folder in sys.path for path in pathlib.Path(folder).rglob("*.py")]
compiled = [importlib.util.cache_from_source(str(path)) for path in sources]
os.environ["TZ"] = "Asia/Tokyo"
time.tzset()
home = pathlib.Path.home()
try:
    pathlib.Path("/written").touch()
except OSError as error:
    refusal = error.strerror
device, size = os.stat("/").st_dev, 0
for folder, folders, files in os.walk("/"):  # Not what is mounted.
    folders[:] = [name for name in folders if os.lstat(os.path.join(folder, name)).st_dev == device]
    size += sum(os.lstat(os.path.join(folder, name)).st_size for name in files)
print(json.dumps({
    "user": pwd.getpwuid(os.getuid()).pw_name,
    "home": [str(home), home.owner(), os.getcwd()],
    "refusal": refusal,
    "megabytes": size / 1e6,
    "programs": sorted(programs),
    "shells": [path for path in ("/bin/sh", "/bin/bash", "/usr/bin/sh") if os.path.exists(path)],
    "ours": sorted(path.name for path in pathlib.Path(sys.prefix).rglob("site-packages/barnabas*") if not path.suffix),
    "not compiled": [path for path in compiled if not os.path.exists(path)],
    "zone": time.tzname[0],
    "version": importlib.metadata.version("barnabas"),
    "help": subprocess.run(["barnabas", "--help"], capture_output=True, text=True, check=True).stdout.splitlines()[0],
    "system": platform.freedesktop_os_release()["VERSION_CODENAME"],
    "described": len(list(pathlib.Path("/var/lib/dpkg/status.d").iterdir())),
}))
"""
SHARED = ["barnabas", "barnabas_core", "barnabas_kube", "barnabas_web"]
OURS = {
    "broker": {*SHARED, "barnabas_broker"},
    "operator": {
        *SHARED,
        "barnabas_console",
        "barnabas_kafka",
        "barnabas_kubectl",
        "barnabas_lag",
        "barnabas_operator",
        "barnabas_registry",
    },
    "jobs": {"barnabas", "barnabas_core", "barnabas_jobs", "barnabas_registry"},
}
MEGABYTES_MAX = {"broker": 80, "operator": 100, "jobs": 1240}
"""The size that is documented for the broker's image, and limits for the others that are above theirs."""


def run_in(cluster: Cluster, namespace: str, image: str, *command: str) -> str:
    """Run a command to its end in a pod of this image; return its output."""
    container = {
        "name": "look",
        "image": cluster.image(image),
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "securityContext": SECURITY,
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "look"}, "spec": spec}
    kubectl = cluster.kubectl
    kubectl("-n", namespace, "apply", "-f-", stdin=json.dumps(pod))
    ended = kubectl.ask("-n", namespace, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/look", PATIENTLY)
    told = kubectl.ask("-n", namespace, "logs", "look").stdout
    assert ended.returncode == 0, told + kubectl("-n", namespace, "describe", "pod", "look")
    return told


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_a_named_user_a_read_only_file_system_and_no_shell(
    cluster: Cluster, namespace: str, image: str
) -> None:
    seen = json.loads(run_in(cluster, namespace, image, "python", "-c", LOOK))
    assert seen["user"] == "barnabas"
    assert seen["home"] == ["/var/lib/barnabas", "barnabas", "/var/lib/barnabas"]
    assert seen["refusal"] == "Read-only file system"
    assert seen["shells"] == []
    assert set(seen["programs"]) >= {"barnabas", "python", "python3"}
    assert not [
        name for name in seen["programs"] if re.fullmatch(r"(ba|da)?sh|cc|gcc|g\+\+|make|apt.*|dpkg.*|pip.*|perl", name)
    ]
    assert set(seen["ours"]) == OURS[IMAGES[image]]
    assert seen["not compiled"] == []
    assert 50 < seen["megabytes"] < MEGABYTES_MAX[IMAGES[image]]
    assert seen["zone"] == "JST"
    assert (seen["system"], seen["described"] > 20) == ("bookworm", True), "scanners need the list of packages"
    assert seen["help"].startswith("usage: barnabas")


def test_commands_for_administrators_are_only_in_the_operators_image(castle: Castle) -> None:
    """The brokers' image lacks the sources of the operator, which these commands need."""
    said = castle.barnabas("accept-loss", "--all")
    assert said.startswith("nothing to accept")
    refused = castle.ask("exec", f"{NAME}-broker-0", "--", "barnabas", "status")
    assert refused.returncode == 2
    assert "the operator's image contains" in refused.stderr
