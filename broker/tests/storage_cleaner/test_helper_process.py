"""The helper as a real process: it does the work, dies with the broker, and its own death only delays the work."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compaction_samples import COMPACT, NOW_MS, PLANES, OneCompactedLog
from msgspec.structs import replace

from barnabas_broker.storage.helper import (
    WORKER_COMMAND,
    Failed,
    Helper,
    HelperDied,
    InspectBatch,
    Inspected,
    KeysMapped,
    MapKeys,
    SourceSegment,
    frame,
)
from barnabas_broker.storage.inspection import BatchInspector, inspection
from barnabas_broker.wire.record_batch import Codec, parse_header
from barnabas_broker.wire.records import Record, decode_batch, encode_batch
from barnabas_core.config.log_config import Compression, LogConfig
from harness.manual_clock import ManualClock
from harness.manual_timers import ManualTimers

MEMORY_BYTES = 512 << 20
DEADLINE_S = 60.0


def batch(value: bytes = b"value", codec: int = 0) -> bytes:
    return bytes(encode_batch([Record(0, NOW_MS, b"key", value)], attributes=codec))


def quick_request() -> InspectBatch:
    return inspection(batch(), LogConfig(compression=Compression.LZ4), NOW_MS)


def slow_request(one: OneCompactedLog, bytes_per_s: float = 0.1) -> MapKeys:
    """Return a request with so few bytes a second that it takes hours, in waits of hours."""
    return MapKeys(
        directory=str(one.directory),
        segments=[SourceSegment(0, one.file(0, ".log").stat().st_size)],
        start_offset=0,
        end_offset=one.log.log_end_offset,
        map_bytes_max=1 << 20,
        load_factor=0.9,
        read_bytes=1024,
        unpacked_bytes_max=1 << 20,
        bytes_per_s=bytes_per_s,
    )


def filled(path: Path) -> OneCompactedLog:
    one = OneCompactedLog(path)
    for number in range(20):
        one.append([(b"a", b"%d" % number), (b"b", bytes(300))])
    one.roll()
    return one


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds."""
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, "the condition never came true"
        await asyncio.sleep(0.01)


def runs(process_id: int) -> bool:
    """True if such a process exists and is no zombie."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def test_a_real_helper_process_compacts_a_log(tmp_path: Path) -> None:
    one = filled(tmp_path)
    helper = Helper(ManualTimers(), lambda: MEMORY_BYTES)
    one.cleaner._helper = helper
    assert await one.cleaner.clean_dirtiest()
    await one.cleaner.stop()
    assert one.cleaner.backoff.failed == {}
    assert sorted(one.records()) == [38, 39]


async def test_a_helper_that_is_killed_during_a_round_fails_only_that_round(tmp_path: Path) -> None:
    one = filled(tmp_path)
    expected = one.records()
    helper = Helper(ManualTimers(), lambda: MEMORY_BYTES)
    one.cleaner._helper = helper
    one.settings = replace(one.settings, log_cleaner_io_max_bytes_per_second=1.0, log_cleaner_io_buffer_size=1024)
    round_ = asyncio.create_task(one.cleaner.clean_dirtiest())
    await until(lambda: helper.process_id is not None)
    process_id = helper.process_id
    assert process_id is not None
    os.kill(process_id, signal.SIGKILL)
    assert await round_
    assert one.cleaner.backoff.failed[PLANES].reason == "the helper process ended with exit code -9"
    assert one.records() == expected
    one.settings = replace(one.settings, log_cleaner_io_max_bytes_per_second=float("inf"))
    one.clock.passed_ms += 15_000
    assert await one.cleaner.clean_dirtiest()
    assert helper.starts == 2
    await one.cleaner.stop()
    assert one.cleaner.backoff.failed == {}
    assert sorted(one.records()) == [38, 39]


async def test_a_busy_helper_gives_signs_of_life_until_it_answers(tmp_path: Path) -> None:
    """A round may take hours; the signs show that it makes progress."""
    one = filled(tmp_path)
    module = "barnabas_broker.storage.helper_worker"
    often = f"from {module} import main; import {module} as worker; worker.SIGN_OF_LIFE_S = 0.001; main()"
    helper = Helper(ManualTimers(), lambda: MEMORY_BYTES, command=(sys.executable, "-c", often))
    assert isinstance(await helper.request(quick_request()), Inspected)
    assert helper.signs_of_life == 0
    assert isinstance(await helper.request(slow_request(one, bytes_per_s=20_000)), KeysMapped)
    assert helper.signs_of_life > 1
    await helper.stop()


async def test_a_round_fails_if_the_helper_died_and_lost_its_key_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = filled(tmp_path)
    helper = Helper(ManualTimers(), lambda: MEMORY_BYTES)
    real_request = helper.request

    async def request(asked: Any) -> Any:
        answer = await real_request(asked)
        if isinstance(answer, KeysMapped):
            await helper.stop()
        return answer

    monkeypatch.setattr(helper, "request", request)
    one.cleaner._helper = helper
    assert await one.cleaner.clean_dirtiest()
    await helper.stop()
    assert "has lost its key map" in one.cleaner.backoff.failed[PLANES].reason
    assert len(one.records()) == 40


async def test_a_helper_answers_in_the_order_of_the_requests() -> None:
    helper = Helper(ManualTimers(), lambda: MEMORY_BYTES)
    config = LogConfig(compression=Compression.ZSTD)
    batches = [batch(b"%d" % number * 100_000) for number in range(10)]
    answers = await asyncio.gather(*(helper.request(inspection(each, config, NOW_MS)) for each in batches))
    for number, answer in enumerate(answers):
        assert isinstance(answer, Inspected)
        assert answer.batch is not None
        (record,) = decode_batch(answer.batch, 0, parse_header(answer.batch, 0), 1 << 24)
        assert record.value == b"%d" % number * 100_000
    assert helper.starts == 1
    await helper.stop()


async def test_a_batch_beyond_the_memory_of_the_helper_fails_only_its_request() -> None:
    helper = Helper(ManualTimers(), lambda: 160 << 20)
    bomb = encode_batch([Record(0, NOW_MS, b"key", bytes(90 << 20))], attributes=Codec.ZSTD)
    config = LogConfig(cleanup_policies=COMPACT)
    answer = await helper.request(inspection(bytes(bomb), config, NOW_MS))
    assert isinstance(answer, Failed)
    assert "too little memory" in answer.message
    assert isinstance(await helper.request(quick_request()), Inspected)
    assert helper.starts == 1
    await helper.stop()


async def test_an_idle_helper_ends_and_the_next_request_starts_another() -> None:
    timers = ManualTimers()
    helper = Helper(timers, lambda: MEMORY_BYTES, idle_s=33.0)
    await helper.request(quick_request())
    first = helper.process_id
    assert first is not None
    await helper.request(quick_request())
    (timer,) = timers.waiting
    assert timer.delay_s == 33.0
    timer.run()
    await until(lambda: not runs(first))
    await helper.request(quick_request())
    assert helper.process_id != first
    assert helper.starts == 2
    await helper.stop()
    assert timers.waiting == []


async def test_a_busy_helper_does_not_count_as_idle(tmp_path: Path) -> None:
    one = filled(tmp_path)
    timers = ManualTimers()
    helper = Helper(timers, lambda: MEMORY_BYTES)
    long = asyncio.create_task(helper.request(slow_request(one)))
    await until(lambda: helper.process_id is not None)
    assert timers.waiting == []
    await helper.stop()
    with pytest.raises(HelperDied):
        await long


async def test_the_helper_has_a_low_priority_a_memory_limit_and_a_high_oom_score() -> None:
    helper = Helper(ManualTimers(), lambda: MEMORY_BYTES)
    await helper.request(quick_request())
    process_id = helper.process_id
    assert process_id is not None
    assert os.getpriority(os.PRIO_PROCESS, process_id) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
    assert Path(f"/proc/{process_id}/oom_score_adj").read_text(encoding="ascii").strip() == "500"
    limits = Path(f"/proc/{process_id}/limits").read_text(encoding="ascii")
    assert str(MEMORY_BYTES) in next(line for line in limits.splitlines() if line.startswith("Max address space"))
    await helper.stop()


async def test_a_helper_that_cannot_be_started_fails_the_round(tmp_path: Path) -> None:
    one = filled(tmp_path)
    one.cleaner._helper = Helper(ManualTimers(), lambda: MEMORY_BYTES, command=("/no/such/python",))
    assert await one.cleaner.clean_dirtiest()
    assert "No such file" in one.cleaner.backoff.failed[PLANES].reason


async def test_a_batch_inspector_survives_the_death_of_its_helper() -> None:
    helper = Helper(ManualTimers(), lambda: MEMORY_BYTES)
    inspector = BatchInspector(helper, ManualClock(), asyncio.timeout)
    config = LogConfig(compression=Compression.GZIP)
    for _ in range(3):
        stored = (await inspector.inspect(batch(), config)).batch
        assert stored is not None
        assert parse_header(stored, 0).compression == Codec.GZIP
        process_id = helper.process_id
        assert process_id is not None
        os.kill(process_id, signal.SIGKILL)
    await inspector.stop()


BROKER: str = """
import asyncio, sys
from pathlib import Path
from test_helper_process import Helper, ManualTimers, filled, slow_request, quick_request

async def run():
    one = filled(Path(sys.argv[1]))
    helper = Helper(ManualTimers(), lambda: 1 << 29)
    await helper.request(quick_request())
    print(helper.process_id, flush=True)
    if sys.argv[2] == "working":
        await helper.request(slow_request(one))
    await asyncio.sleep(1000)

asyncio.run(run())
"""


@pytest.mark.parametrize("state", ["idle", "working"])
async def test_the_helper_ends_when_the_broker_is_killed(tmp_path: Path, state: str) -> None:
    command = [sys.executable, "-c", BROKER, str(tmp_path), state]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        try:
            process_id = int(broker.stdout.readline())
            assert runs(process_id)
        finally:
            broker.kill()
    await until(lambda: not runs(process_id))


def test_an_incomplete_request_ends_the_helper_without_an_error() -> None:
    """A broker that is killed while it writes leaves such a request."""
    request = frame(quick_request())
    command = [*WORKER_COMMAND, str(1 << 30)]
    for length in (1, 3, len(request) // 2, len(request) - 1):
        done = subprocess.run(command, input=request[:length], capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
