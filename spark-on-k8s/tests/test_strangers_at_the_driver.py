"""What a client without the secret of a session gets from the ports of its driver."""

import os
from pathlib import Path
from typing import Any, Final

import pytest
from jobs_world import JARS
from pyspark.sql import SparkSession

from barnabas_jobs.app.connector import AUTHENTICATED, session
from barnabas_jobs.planning.errors import BadOption
from harness.stranger import UNAUTHENTICATED, answer_of_spark, given_to_a_stranger, listening_rows

LOOPBACK: Final = ("0100007F", "0000000000000000FFFF00000100007F")
"""The address 127.0.0.1 in /proc/net/tcp, and in tcp6."""


def jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def ports(spark: SparkSession) -> dict[str, int]:
    """Return the ports of the driver for messages and for blocks."""
    env = jvm(spark).org.apache.spark.SparkEnv.get()
    return {"messages": env.rpcEnv().address().port(), "blocks": env.blockManager().blockManagerId().port()}


@pytest.mark.parametrize("port", ["messages", "blocks"])
def test_the_driver_handles_no_message_of_a_client_without_the_secret(spark: SparkSession, port: str) -> None:
    host, number = spark.conf.get("spark.driver.host"), ports(spark)[port]
    assert host is not None
    assert given_to_a_stranger(host, number) == set()
    assert UNAUTHENTICATED in answer_of_spark(host, number), "nobody is at the port"


def test_a_driver_without_executors_listens_only_on_the_loopback_address(spark: SparkSession) -> None:
    pid = jvm(spark).java.lang.ProcessHandle.current().pid()
    links = (os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink())
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    tables = (Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    addresses = [row[1].rpartition(":")[0] for table in tables for row in listening_rows(table) if row[9] in own]
    assert len(addresses) >= len(ports(spark))
    assert [each for each in addresses if each not in LOOPBACK] == []


@pytest.mark.parametrize("name", AUTHENTICATED)
def test_no_setting_of_a_run_opens_its_driver(name: str) -> None:
    with pytest.raises(BadOption, match=f"{name} is off; allowed: {AUTHENTICATED[name]}"):
        session("local[2]", JARS, {name: "off"})
