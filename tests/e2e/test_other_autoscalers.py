"""What `examples/` has for those who let KEDA or a HorizontalPodAutoscaler scale consumers.

The API server takes the HorizontalPodAutoscaler itself. KEDA's definition is in no package registry: models that others
generate from it (npm) check the ScaledObjects, types and required fields, without a KEDA that carries them out.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from ruamel.yaml import YAML

from barnabas_lag.exposition.catalogue import LAG_SUM
from barnabas_operator.planning.groups.scalers import Scalers, refuse_scaling
from barnabas_operator.planning.groups.target_scale import TargetScale
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec, ScaleTarget, Scaling
from barnabas_operator.resources.object_meta import ObjectMeta
from harness.require import missing
from local_kubernetes.binaries import CannotStart, cache, locked, require
from local_kubernetes.control_plane import ControlPlane

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "kubernetes" / "scaling"
MODELS: Final = "@kubernetes-models/keda@2.0.0"
SECONDS_MAX: Final = 300
CHECK: Final = """
import { readFileSync } from "node:fs";
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1";
try { new ScaledObject(JSON.parse(readFileSync(0, "utf8"))).validate(); }
catch (error) { console.error(error.message); process.exit(1); }
"""
SCALING: Final = Scaling(target=ScaleTarget(name="billing"), lag_threshold=1000)
BILLING: Final = ConsumerGroup(metadata=ObjectMeta(name="billing"), spec=ConsumerGroupSpec(scaling=SCALING))


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load((EXAMPLES / name).read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def models() -> Path:
    """The folder of a node program that knows KEDA's types."""
    try:
        require("node", "npm")
    except CannotStart as reason:
        missing(reason)
    folder = cache() / f"keda-models-{MODELS.rpartition('@')[2]}"
    with locked("keda-models"):
        if not (folder / "node_modules").exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            options = ("--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(partial))
            subprocess.run(["npm", "install", *options, MODELS], check=True, timeout=SECONDS_MAX)
            partial.rename(folder)
    return folder


def refused(models: Path, manifest: dict[str, Any]) -> str:
    command = ["node", "--input-type=module", "--eval", CHECK]
    done = subprocess.run(
        command, cwd=models, input=json.dumps(manifest), text=True, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0 or done.stderr, "node says what is wrong"
    return done.stderr if done.returncode else ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["keda-prometheus.yaml", "keda-kafka.yaml"])
def test_a_scaled_object_is_as_keda_declares_it(name: str, models: Path) -> None:
    manifest = read(name)
    assert refused(models, manifest) == ""
    manifest["spec"]["triggers"][0]["metadata"]["threshold"] = 1000
    assert "must be string" in refused(models, manifest)


def test_the_api_server_takes_the_autoscaler_and_the_operator_leaves_the_target_to_it(api_server: ControlPlane) -> None:
    namespace = f"autoscalers-{uuid4().hex[:8]}"
    api_server.kubectl("create", "namespace", namespace)
    api_server.kubectl("-n", namespace, "apply", "--validate=strict", "-f", str(EXAMPLES / "hpa.yaml"))
    there = api_server.requests.listing("HorizontalPodAutoscaler", namespace)
    refusal = refuse_scaling(BILLING, SCALING, TargetScale(1, "1"), Scalers(there, []))
    assert refusal is not None
    assert "is scaled by the HorizontalPodAutoscaler billing" in refusal.message
    api_server.kubectl("delete", "namespace", namespace, "--wait=false")


def test_they_ask_for_a_metric_that_the_lag_exporter_has() -> None:
    (rule,) = read("prometheus-adapter.yaml")["rules"]["external"]
    (metric,) = read("hpa.yaml")["spec"]["metrics"]
    name = metric["external"]["metric"]["name"]
    query = read("keda-prometheus.yaml")["spec"]["triggers"][0]["metadata"]["query"]
    assert name == LAG_SUM.name
    assert rule["name"]["as"] == name
    assert rule["seriesQuery"].startswith(f"{name}{{")
    assert query.startswith(f"sum({name}{{")
