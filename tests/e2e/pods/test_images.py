"""The images as pods run them: a named user, a root file system that is not written, nothing to compile with."""

import json

import pytest

from e2e.images import IMAGES
from e2e.providers import Cluster

LOOK = """
echo "user $(id -un)"
touch /written 2>/dev/null && echo "the root is writable"
for tool in cc gcc g++ make; do command -v $tool >/dev/null && echo "there is $tool"; done
barnabas --help | head -1
python -c "import barnabas_broker, barnabas_operator, importlib.metadata as m; print('version', m.version('barnabas'))"
"""


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_as_a_named_user_that_writes_nothing(cluster: Cluster, namespace: str, image: str) -> None:
    container = {
        "name": "look",
        "image": cluster.image(image),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", LOOK],
        "securityContext": {
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "look"}, "spec": spec}
    kubectl = cluster.kubectl
    kubectl("-n", namespace, "apply", "-f-", stdin=json.dumps(pod))
    ended = kubectl.ask(
        "-n", namespace, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/look", "--timeout=60s"
    )
    assert ended.returncode == 0, kubectl("-n", namespace, "describe", "pod", "look")
    seen = kubectl("-n", namespace, "logs", "look").splitlines()
    assert seen[0] == "user barnabas"
    assert not [line for line in seen if line.startswith(("there is", "the root"))]
    assert seen[-1].startswith("version ")
