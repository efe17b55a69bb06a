"""`barnabas up` while the cluster's brokers accept no connection."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import Credentials
from barnabas_operator.app import up
from barnabas_operator.app.child_process import DataDir
from barnabas_operator.app.cluster_options import Log
from barnabas_operator.app.up import Supervisor
from barnabas_operator.kafka.cluster_admin import ClusterAdmin


@pytest.mark.parametrize("attempts", [1, 3])
def test_the_supervisor_retries_to_connect_until_it_is_stopped(tmp_path: Path, attempts: int) -> None:
    """Otherwise the process would run for seconds after it has reported that it stopped."""
    tried = []

    def refuses(_bootstrap: str, timeout_s: float, _security: Credentials) -> ClusterAdmin:
        tried.append(timeout_s)
        if len(tried) == attempts:
            running.stop()
        raise ClusterUnreachable("nobody is there")

    data_dir = DataDir(tmp_path / "data")
    running = Supervisor(tmp_path, data_dir, Log(Console(file=io.StringIO())), 1.0, connect=refuses)
    try:
        with pytest.raises(ClusterUnreachable):
            running._connected()
    finally:
        data_dir.release()
    assert tried == [up.CONNECT_ATTEMPT_S] * attempts
