"""The definition of SparkApplication, made of the models that Kubeflow itself publishes of its API (a package of PyPI).

Kubeflow makes these models and its own CustomResourceDefinition of the same types of Go. The models have each field and
its type, also of pods; they do not have the few bounds and lists of values that the definition has beside them.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from harness.kept_builds import cache, locked

VERSION: Final = "2.4.0"
WHEEL: Final = f"kubeflow-spark-api=={VERSION}"
WHEEL_HASH: Final = "sha256:c86989b74395afaf20f011d13bcb665584f2b2f1fc3289fdfa988092acab7f7c"
PYDANTIC: Final = "pydantic==2.14.3"
SECONDS_MAX: Final = 300
SCHEMA: Final = """
import json
from kubeflow_spark_api.models.spark_v1beta2_spark_application import SparkV1beta2SparkApplication
print(json.dumps(SparkV1beta2SparkApplication.model_json_schema(by_alias=True)))
"""
NUMBER_OR_TEXT: Final = ("IoK8sApimachineryPkgApiResourceQuantity", "IoK8sApimachineryPkgUtilIntstrIntOrString")
GROUP: Final = "sparkoperator.k8s.io"


def spark_application_definition() -> Path:
    """Return the file of the definition, made once. Raises CalledProcessError if the package cannot be had."""
    kept = cache() / f"kubeflow-spark-api-{VERSION}-sparkapplications.json"
    with locked("kubeflow"):
        if not kept.exists():
            kept.write_text(json.dumps(definition_of(_published_schema())))
    return kept


def _published_schema() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        (wanted := Path(folder) / "requirements.txt").write_text(f"{WHEEL} --hash={WHEEL_HASH}\n")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", f"--target={folder}/site"]
        for words in (["--no-deps", "-r", str(wanted)], [PYDANTIC]):
            subprocess.run([*pip, *words], check=True, timeout=SECONDS_MAX)
        command = [sys.executable, "-c", SCHEMA]
        told = subprocess.run(command, check=True, capture_output=True, env={"PYTHONPATH": f"{folder}/site"})
    schema: dict[str, Any] = json.loads(told.stdout)
    return schema


def definition_of(published: dict[str, Any]) -> dict[str, Any]:
    """Return the CustomResourceDefinition, whose schema has no references."""
    types = published["$defs"]
    schema = {name: _structural(published["properties"][name], types) for name in ("spec", "status")}
    version = {
        "name": "v1beta2",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": schema}},
    }
    names = {"kind": "SparkApplication", "plural": "sparkapplications", "shortNames": ["sparkapp"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # The group is a protected one: the API server wants to know who approved it.
        "metadata": {
            "name": f"sparkapplications.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, made of the published models for a test"},
        },
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _structural(part: dict[str, Any], types: dict[str, Any]) -> dict[str, Any]:
    """Return the part of the schema without nulls: a field that may be null may be left out.

    Texts for people go, too.
    """
    options = [each for each in part.get("anyOf", ()) if each != {"type": "null"}]
    if options:
        (part,) = options
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return {"x-kubernetes-int-or-string": True} if name in NUMBER_OR_TEXT else _structural(types[name], types)
    made: dict[str, Any] = {"type": part["type"]}
    made |= {name: part[name] for name in ("required", "format") if name in part}
    for name in ("items", "additionalProperties"):
        if isinstance(part.get(name), dict):
            made[name] = _structural(part[name], types)
    if "properties" in part:
        made["properties"] = {name: _structural(each, types) for name, each in part["properties"].items()}
    return made
