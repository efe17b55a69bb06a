"""`barnabas up` starts a lag exporter if the Cluster declares one, and restarts it as it restarts a broker."""

import os
import re
import signal
import urllib.error
import urllib.request

from harness.deadline import PATIENCE_S, wait_for
from harness.running_up import CLUSTER, RunningUp, alive

DECLARED = CLUSTER.replace("spec:\n", "spec:\n  lagExporter:\n    topicExcludeRegex: ^__\n", 1)
ADDRESS = re.compile(r"the lag exporter serves the lag of groups: (http://\S+)")


def addresses(up: RunningUp) -> list[str]:
    """Return the addresses of all starts, the latest one last."""
    return ADDRESS.findall(up.log())


def page(url: str) -> str:
    """Return the page, or an empty text if nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())
    except (OSError, urllib.error.URLError):
        return ""


def pid(up: RunningUp) -> int:
    return int((up.data / "lag-exporter" / "pid").read_text(encoding="utf-8"))


def test_up_keeps_a_lag_exporter_running_as_long_as_the_cluster_declares_it(up: RunningUp) -> None:
    up.write("cluster.yaml", DECLARED)
    up.start()
    (address,) = wait_for(lambda: addresses(up))
    wait_for(lambda: page(address), lambda text: "kafka_brokers 1.0" in text)
    first = pid(up)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: "kafka_brokers 1.0" in page(address) and pid(up) != first)
    second = pid(up)
    up.write("cluster.yaml", DECLARED.replace("^__", "^secret"))
    wait_for(lambda: len(addresses(up)) == 2)
    assert not alive(second)
    up.write("cluster.yaml", CLUSTER)
    wait_for(lambda: up.log().count("the lag exporter has ended") == 2)
    assert page(addresses(up)[-1]) == ""


def test_up_stops_its_lag_exporter_and_one_that_a_killed_run_left_behind(up: RunningUp) -> None:
    up.write("cluster.yaml", DECLARED)
    up.start()
    wait_for(lambda: len(addresses(up)) == 1)
    left = pid(up)
    up.kill()
    assert alive(left)
    up.start()
    wait_for(lambda: len(addresses(up)) == 2)
    assert not alive(left)
    last = pid(up)
    assert up.stop() == 0
    assert not alive(last)


def test_an_invalid_regular_expression_is_refused_with_its_position(up: RunningUp) -> None:
    up.start()
    up.write("cluster.yaml", DECLARED.replace("^__", "'('"))
    said = "cluster.yaml:7:24: spec.lagExporter.topicExcludeRegex is '(', which is not a regular expression of Python"
    wait_for(lambda: said in up.log())
    assert addresses(up) == []
