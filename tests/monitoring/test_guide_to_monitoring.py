"""The commands and configurations in the guide to dashboards and alerts work."""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

from harness.certificates import Authority
from local_kubernetes.helm import template
from monitoring.panels_of import DASHBOARDS, read
from monitoring.prometheus_image import MANIFEST
from monitoring.promtool import GUIDE, RULES, TABLES, promtool

KINDS: Final = ("PodMonitor", "PrometheusRule")
TEXT: Final = GUIDE.read_text(encoding="utf-8")


def test_the_guides_chart_values_render_a_monitor_alerts_and_dashboards() -> None:
    served = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in KINDS]
    given = [f"--set={each}" for each in re.findall(r"--set (\S+)", TEXT)]
    text = template("--set=crds.enabled=false", *served, *given)
    kinds = Counter(each["kind"] for each in YAML(typ="safe").load_all(text) if each)
    assert [kinds[kind] for kind in (*KINDS, "ConfigMap")] == [1, 1, len(DASHBOARDS)]


def test_prometheus_accepts_the_guides_configuration(tmp_path: Path) -> None:
    (config,) = re.findall(r"```yaml\n(rule_files.*?)```", TEXT, re.DOTALL)
    (tmp_path / "prometheus.yaml").write_text(config, encoding="utf-8")
    shutil.copy(RULES, tmp_path)
    done = promtool("check", "config", str(tmp_path / "prometheus.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_accepts_the_guides_configuration_with_a_token(tmp_path: Path) -> None:
    (config,) = re.findall(r"```yaml\n# prometheus\.yml\n(scrape_configs.*?)```", TEXT, re.DOTALL)
    (tmp_path / "prometheus.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "ca.pem").write_text(Authority(tmp_path / "pki").certificate, encoding="utf-8")
    (tmp_path / "metrics-token").write_text("geheim", encoding="utf-8")
    done = promtool("check", "config", str(tmp_path / "prometheus.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_guide_prints_the_scrape_configuration_of_the_prometheus_manifest(tmp_path: Path) -> None:
    (printed,) = re.findall(r"```yaml\n(scrape_configs.*?)```", TEXT, re.DOTALL)
    manifest = YAML(typ="safe").load_all(MANIFEST.read_text(encoding="utf-8"))
    (config,) = (each["data"]["prometheus.yml"] for each in manifest if each["kind"] == "ConfigMap")
    assert config.endswith(printed)
    (tmp_path / "prometheus.yaml").write_text(config, encoding="utf-8")
    done = promtool("check", "config", str(tmp_path / "prometheus.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_reference_lists_every_dashboard() -> None:
    listed = re.findall(r"^\| (Barnabas / [\w ]+) \|", TABLES.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(read(file)["title"] for file in DASHBOARDS)


def test_the_guide_shows_a_picture_of_every_dashboard() -> None:
    pictures = set(re.findall(r"\(../pictures/([\w-]+)\.png\)", TEXT))
    there = {each.stem for each in (GUIDE.parents[1] / "pictures").iterdir()}
    assert pictures == {file.stem for file in DASHBOARDS} == {name for name in there if not name.startswith("console")}
