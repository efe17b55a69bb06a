"""Machines inside this machine: what is cut is lost in that direction only, and nothing stays behind."""

import errno
import os
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import pytest

from harness.machines import CLIENTS, Lan, MachinesUnavailable

PORT = 9
SEND = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(sys.argv[1].encode(), (sys.argv[2], 9))"


@pytest.fixture
def lan(tmp_path: Path, not_here: Callable[[MachinesUnavailable], None]) -> Iterator[Lan]:
    try:
        made = Lan(2, lambda number: tmp_path / str(number), 4)
    except MachinesUnavailable as reason:
        not_here(reason)
        raise
    with made:
        yield made


@pytest.fixture
def inbox(lan: Lan) -> Iterator[socket.socket]:
    """Of our own end."""
    with socket.socket(type=socket.SOCK_DGRAM) as inbox:
        inbox.bind((lan.address(CLIENTS), PORT))
        inbox.settimeout(10)
        yield inbox


def send(lan: Lan, source: int, text: str) -> None:
    """From a machine to our inbox."""
    lan.machines[source].run(sys.executable, "-c", SEND, text, lan.address(CLIENTS))


def test_lans_that_are_made_at_once_have_networks_of_their_own(lan: Lan, tmp_path: Path) -> None:
    """Else what is sent to the machines of one goes to those of the other."""

    def make(number: int) -> str:
        with Lan(0, lambda _: tmp_path, 4) as other:
            all_there.wait(30)
            return other.address(CLIENTS)

    all_there = Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        addresses = {*pool.map(make, range(3)), lan.address(CLIENTS)}
    assert len(addresses) == 4


def test_what_is_cut_is_lost_until_it_is_mended_and_others_get_through(lan: Lan, inbox: socket.socket) -> None:
    send(lan, 0, "first")
    lan.cut(0, CLIENTS)
    send(lan, 0, "lost")
    send(lan, 1, "from the other")
    lan.mend()
    send(lan, 0, "last")
    assert [inbox.recv(100) for _ in range(3)] == [b"first", b"from the other", b"last"]


def test_a_cut_is_one_way(lan: Lan, inbox: socket.socket) -> None:
    lan.cut(CLIENTS, 0)
    send(lan, 0, "still comes")
    assert inbox.recv(100) == b"still comes"


def test_a_machine_has_a_small_disk_of_its_own(lan: Lan, tmp_path: Path) -> None:
    seen = lan.machines[0].seen_from_outside(tmp_path / "0")
    with pytest.raises(OSError) as full, (seen / "file").open("wb") as file:
        file.write(bytes(5 << 20))
    assert full.value.errno == errno.ENOSPC
    assert list((tmp_path / "0").iterdir()) == []


def test_nothing_stays_behind(lan: Lan) -> None:
    device = Path(f"/sys/class/net/lan{lan._switch.pid}")
    assert device.exists()
    pids = [machine.pid for machine in (*lan.machines, lan._switch)]
    lan.close()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            pytest.fail(f"process {pid} is still there")
