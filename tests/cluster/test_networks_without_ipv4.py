"""Listeners and pages without a host serve every address of a pod, also where pods have only addresses of IPv6."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.apache_kafka import write_properties
from harness.deadline import PATIENCE_S
from harness.require import require

ONLY_IPV6 = 'ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "$@"'
PROGRAM = """
import json, subprocess, sys, time, urllib.request
from confluent_kafka import Producer

broker = subprocess.Popen([sys.executable, "-m", "barnabas", "broker", sys.argv[1]])
exporter = subprocess.Popen([sys.executable, "-m", "barnabas", "lag-exporter", "--bootstrap=[::1]:9092"])
try:
    delivered = []
    producer = Producer({"bootstrap.servers": "[::1]:9092"})
    report = lambda error, record: delivered.append(error or record.offset())
    producer.produce("flights", b"departed", on_delivery=report)
    producer.flush(float(sys.argv[2]))
    pages = []
    for port in (9404, 9308):
        while not pages or pages[-1][0] != port:
            try:
                pages.append((port, urllib.request.urlopen(f"http://[::1]:{port}/metrics", timeout=60).status))
            except OSError:
                if None not in (broker.poll(), exporter.poll()):
                    raise
                time.sleep(0.05)
    print(json.dumps([delivered, pages]))
finally:
    exporter.terminate(), broker.terminate(), exporter.wait(), broker.wait()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")
def test_a_broker_and_a_lag_exporter_serve_a_network_that_has_only_ipv6(tmp_path: Path) -> None:
    for program in ("unshare", "ip"):
        require(shutil.which(program), f"{program} makes the network namespace")
    settings = {
        "node.id": "0",
        "listeners": "PLAINTEXT://:9092",
        "advertised.listeners": "PLAINTEXT://[::1]:9092",
        "http.listener": ":9404",
        "log.dirs": str(tmp_path / "log"),
        "metadata.store": f"sqlite:///{tmp_path / 'metadata.sqlite'}",
    }
    write_properties(tmp_path / "server.properties", settings)
    inside = [sys.executable, "-c", PROGRAM, str(tmp_path / "server.properties"), str(PATIENCE_S)]
    command = ["unshare", "--net", "sh", "-c", ONLY_IPV6, "sh", *inside]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S)
    assert done.stdout.strip().endswith("[[0], [[9404, 200], [9308, 200]]]"), done.stdout + done.stderr
