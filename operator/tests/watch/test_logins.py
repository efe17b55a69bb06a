"""kopf watches with the credentials with which the operator writes."""

import asyncio
import json
import logging
from pathlib import Path

import kopf
import pytest

from barnabas_operator.watch import Logins
from harness.manual_loop_clock import HurriedClock


def write_kubeconfig(path: Path, server: str) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))


def first_login() -> kopf.ConnectionInfo | None:
    return asyncio.run(
        Logins(HurriedClock()).next(settings=kopf.OperatorSettings(), logger=logging.getLogger(__name__))
    )


def test_the_default_kubeconfig_is_not_used_for_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_kubeconfig(tmp_path / ".kube" / "config", "http://another-api-server.invalid")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert first_login() is None, "only a pod has other credentials"


def test_the_kubeconfig_of_the_environment_is_used_for_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_kubeconfig(tmp_path / "kubeconfig", "http://api-server.invalid")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    found = first_login()
    assert found is not None
    assert found.server == "http://api-server.invalid"
