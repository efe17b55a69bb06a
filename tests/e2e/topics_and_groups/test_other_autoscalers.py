"""The files in `examples/` for users whose consumers are scaled by KEDA or a HorizontalPodAutoscaler.

The API server accepts the HorizontalPodAutoscaler itself, and ScaledObjects by KEDA's own definition from the
sources of its release (a Go module); no KEDA runs.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from ruamel.yaml import YAML

from barnabas_lag.exposition import LAG_SUM
from barnabas_operator.planning.groups.scaling import Scalers, TargetScale, refuse_scaling
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec, ScaleTarget, Scaling
from barnabas_operator.resources.kind import ObjectMeta
from harness.kept_builds import cache, locked
from harness.require import missing
from local_kubernetes.binaries import CannotStart, require
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kubectl import PATIENTLY

EXAMPLES: Final = Path(__file__).parents[3] / "examples" / "kubernetes" / "scaling"
KEDA: Final = "github.com/kedacore/keda/v2@v2.15.1"
SUM: Final = "h1:Kb3woYuCeCPICH037vTIcUopXgOYpdP2qa+CmHgV3SE="
DEFINITION: Final = "config/crd/bases/keda.sh_scaledobjects.yaml"
SECONDS_MAX: Final = 300
SCALING: Final = Scaling(target=ScaleTarget(name="billing"), lag_threshold=1000)
BILLING: Final = ConsumerGroup(metadata=ObjectMeta(name="billing"), spec=ConsumerGroupSpec(scaling=SCALING))


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load((EXAMPLES / name).read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def definition() -> Path:
    """The file with KEDA's definition."""
    try:
        require("go")
    except CannotStart as reason:
        missing(reason)
    kept = cache() / f"keda-{KEDA.rpartition('@')[2]}-scaledobjects.yaml"
    with locked("keda"):
        if not kept.exists():
            command = ["go", "mod", "download", "-json", KEDA]
            done = subprocess.run(command, cwd=kept.parent, check=True, capture_output=True, timeout=SECONDS_MAX)
            module = json.loads(done.stdout)
            assert module["Sum"] == SUM
            shutil.copy(Path(module["Dir"]) / DEFINITION, kept)
    return kept


@pytest.mark.slow
def test_the_api_server_accepts_our_scaled_objects_by_kedas_definition(
    api_server: ControlPlane, definition: Path, tmp_path: Path
) -> None:
    namespace = f"keda-{uuid4().hex[:8]}"
    api_server.kubectl("create", "namespace", namespace)
    api_server.kubectl("apply", "--server-side", "-f", str(definition))
    api_server.kubectl("wait", "--for=condition=Established", "crd/scaledobjects.keda.sh", PATIENTLY)
    apply = ("-n", namespace, "apply", "--validate=strict", "-f")
    for name in ("keda-prometheus.yaml", "keda-kafka.yaml"):
        api_server.kubectl(*apply, str(EXAMPLES / name))
        manifest = read(name)
        manifest["spec"]["triggers"][0]["metadata"]["threshold"] = 1000
        (wrong := tmp_path / name).write_text(json.dumps(manifest))
        with pytest.raises(AssertionError, match="in body must be of type string"):
            api_server.kubectl(*apply, str(wrong))
    api_server.kubectl("delete", "namespace", namespace, "--wait=false")


def test_the_operator_does_not_scale_a_target_of_a_horizontal_pod_autoscaler(api_server: ControlPlane) -> None:
    namespace = f"autoscalers-{uuid4().hex[:8]}"
    api_server.kubectl("create", "namespace", namespace)
    api_server.kubectl("-n", namespace, "apply", "--validate=strict", "-f", str(EXAMPLES / "hpa.yaml"))
    there = api_server.requests.listing("HorizontalPodAutoscaler", namespace)
    refusal = refuse_scaling(BILLING, SCALING, TargetScale(1, "1"), Scalers(there, []))
    assert refusal is not None
    assert "is scaled by the HorizontalPodAutoscaler billing" in refusal.message
    api_server.kubectl("delete", "namespace", namespace, "--wait=false")


def test_the_examples_use_a_metric_of_the_lag_exporter() -> None:
    (rule,) = read("prometheus-adapter.yaml")["rules"]["external"]
    (metric,) = read("hpa.yaml")["spec"]["metrics"]
    name = metric["external"]["metric"]["name"]
    assert name == LAG_SUM.name
    assert rule["name"]["as"] == name
    assert rule["seriesQuery"].startswith(f"{name}{{")
