"""`barnabas up --console` serves the console beside the brokers, unless it would look with all rights."""

import re
import urllib.request

import pytest

from harness.command_here import barnabas_here
from harness.deadline import PATIENCE_S, wait_for
from harness.running_up import CLUSTER, RunningUp
from harness.server_process import free_port

SECURED = """\
      tls: true
      authentication: {type: scram-sha-512}
  authorization: {}
"""
ADDRESS = re.compile(r"the console shows the cluster: (http://\S+)")


def test_up_serves_the_console_until_it_stops(up: RunningUp) -> None:
    up.options = ("--console", str(free_port()))
    up.start()
    (address,) = wait_for(lambda: ADDRESS.findall(up.log()))
    assert address == f"http://127.0.0.1:{up.options[1]}/"
    with urllib.request.urlopen(f"{address}topics", timeout=PATIENCE_S) as page:
        assert "<h1>Topics</h1>" in page.read().decode()
    assert up.stop() == 0
    assert "the console has ended" in up.log()


def test_up_does_not_serve_the_console_of_a_secured_cluster(up: RunningUp) -> None:
    up.write("cluster.yaml", CLUSTER.replace("      port: 0\n", f"      port: 0\n{SECURED}", 1))
    up.options = ("--console", str(free_port()))
    up.start()
    wait_for(lambda: "the console does not start beside a secured Cluster" in up.log())
    assert not ADDRESS.findall(up.log())


@pytest.mark.parametrize("port", ["0", "70000", "here"])
def test_up_refuses_a_port_that_is_none(port: str) -> None:
    done = barnabas_here("up", "-f", ".", "--console", port)
    assert done.returncode == 2
    assert f"argument --console: {port!r}; allowed: a port from 1 to 65535" in done.stderr
