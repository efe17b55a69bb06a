"""The API server that other tests rely on is a real one: it keeps, refuses, and comes back after an outage."""

import json
import shutil

from local_kubernetes.control_plane import ControlPlane

CASTLES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "castles.example.barnabas.dev"},
    "spec": {
        "group": "example.barnabas.dev",
        "scope": "Namespaced",
        "names": {"kind": "Castle", "plural": "castles", "singular": "castle"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "towers": {
                                "type": "integer",
                                "x-kubernetes-validations": [
                                    {"rule": "self >= oldSelf", "message": "towers never become fewer"}
                                ],
                            }
                        },
                    }
                },
            }
        ],
    },
}


def _castle(towers: int) -> str:
    metadata = {"name": "schloss", "namespace": "default"}
    return json.dumps(
        {"apiVersion": "example.barnabas.dev/v1", "kind": "Castle", "metadata": metadata, "towers": towers}
    )


def test_a_rule_in_a_definition_refuses_a_change_with_its_message(api_server: ControlPlane) -> None:
    api_server.kubectl("apply", "-f-", stdin=json.dumps(CASTLES))
    api_server.kubectl("wait", "--for=condition=Established", "crd/castles.example.barnabas.dev")
    api_server.kubectl("apply", "-f-", stdin=_castle(towers=3))
    api_server.kubectl("apply", "-f-", stdin=_castle(towers=4))
    refused = api_server.kubectl.ask("apply", "-f-", stdin=_castle(towers=2))
    assert refused.returncode != 0
    assert "towers never become fewer" in refused.stderr


def test_kubectl_takes_it_for_no_other_one_that_had_its_port_before(api_server: ControlPlane) -> None:
    own = api_server.folder / "cache" / "discovery"
    shutil.rmtree(own, ignore_errors=True)
    assert api_server.kubectl("get", "namespaces")
    assert list(own.iterdir()), "what kubectl knows of it is where that of other API servers is"


def test_an_outage_of_the_api_server_loses_nothing(api_server: ControlPlane) -> None:
    api_server.kubectl("create", "configmap", "letter", "--from-literal=to=klamm")
    api_server.stop_api_server()
    assert api_server.kubectl.ask("get", "configmap", "letter").returncode != 0
    api_server.start_api_server()
    api_server.await_ready()
    assert api_server.kubectl("get", "configmap", "letter", "-o=jsonpath={.data.to}") == "klamm"
