"""The cost of metadata in a real API server: `python -m bench.metadata_store NAME [--partitions N] [--topics N]`.

Three brokers without logs (`metadata_speakers`) do what brokers do with the API: a topic is created, a broker stops
and starts, nothing happens for a minute. A line of JSON for each is added to
`metadata-store.jsonl` in the current folder under NAME.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.model import PartitionState
from barnabas_core.errors import ApiError
from bench.api_server_figures import Figures, read_figures
from bench.metadata_speakers import Speaker, speakers
from e2e.state_documents import define_state_documents
from local_kubernetes.apiserver import prepare_api_server
from local_kubernetes.control_plane import ControlPlane

RESULTS = Path("metadata-store.jsonl")
CREATED_TOGETHER = 500
IDLE_S = 60


class Measure:
    """Runs a piece of work and writes down its cost."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self._plane = plane
        self._name = name

    async def of(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work; print and store a line about it."""
        before = await asyncio.to_thread(read_figures, self._plane)
        began = time.monotonic()
        await work()
        seconds = time.monotonic() - began
        figures = (await asyncio.to_thread(read_figures, self._plane)).since(before)
        self._keep(what, seconds, figures)

    def _keep(self, what: str, seconds: float, figures: Figures) -> None:
        rounded = {name: round(value, 1) for name, value in asdict(figures).items()}
        line = json.dumps({"version": self._name, "what": what, "seconds": round(seconds, 2), **rounded})
        print(line, flush=True)
        with RESULTS.open("a", encoding="utf-8") as results:
            results.write(line + "\n")


async def _create(broker: Speaker, topics: int, partitions: int) -> None:
    for begin in range(0, topics, CREATED_TOGETHER):
        numbers = range(begin, min(topics, begin + CREATED_TOGETHER))
        wanted = [NewTopic(f"t{number}", partitions, 3) for number in numbers]
        for outcome in (await broker.writer.create_topics(wanted)).values():
            if isinstance(outcome, ApiError):
                raise outcome


async def _one_partition(broker: Speaker) -> None:
    """Let a leader write the ISR of one partition twenty times."""
    topic = broker.image.topics["t0"]
    number = next(n for n, state in enumerate(topic.partitions) if state.leader == broker.broker_id)
    for _ in range(20):
        broker.propose_again("t0", number)
        before = broker.image.topics["t0"].partitions[number]
        await broker.image.until(partial(_is_newer, broker, number, before))


def _is_newer(broker: Speaker, number: int, before: PartitionState) -> bool:
    return broker.image.topics["t0"].partitions[number].partition_epoch > before.partition_epoch


async def _scenario(measure: Measure, kubeconfig: Path, topics: int, partitions: int) -> None:
    what = f"{topics} topics of {partitions} partitions"
    async with speakers(kubeconfig) as life:
        some = life(0)
        await measure.of(f"{what}: created", lambda: _create(some, topics, partitions))
        await some.until_in_sync(3)
        await measure.of(f"{what}: 20 changes of one partition", lambda: _one_partition(some))

        async def goes() -> None:
            await life(2).stop()
            life(~2)
            await some.until_in_sync(2)

        async def comes() -> None:
            await life(2).start()
            await some.until_in_sync(3)

        async def dies() -> None:
            await life(2).kill()
            life(~2)
            await some.until_in_sync(2)

        await measure.of(f"{what}: a broker stops", goes)
        await measure.of(f"{what}: it comes back", comes)
        await measure.of(f"{what}: it is killed (session of 9 s)", dies)
        await measure.of(f"{what}: it comes back after that", comes)


async def _idle(measure: Measure, kubeconfig: Path, clusters: int) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(clusters):
            await stack.enter_async_context(speakers(kubeconfig))
        await asyncio.sleep(5)
        await measure.of(f"{clusters} clusters of 3, idle for {IDLE_S} s", lambda: asyncio.sleep(IDLE_S))


async def _run(plane: ControlPlane, chosen: argparse.Namespace) -> None:
    measure = Measure(plane, chosen.name)
    if chosen.clusters:
        await _idle(measure, plane.kubeconfig, chosen.clusters)
    if chosen.partitions:
        await _scenario(measure, plane.kubeconfig, 1, chosen.partitions)
    if chosen.topics:
        await _scenario(measure, plane.kubeconfig, chosen.topics, chosen.each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="which version of Barnabas is measured")
    parser.add_argument("--partitions", type=int, default=5_000, help="of one topic; 0: leave that out")
    parser.add_argument("--topics", type=int, default=1_000, help="small ones; 0: leave that out")
    parser.add_argument("--each", type=int, default=1, help="partitions of each of the small topics")
    parser.add_argument("--clusters", type=int, default=10, help="idle ones; 0: leave that out")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        plane = prepare_api_server(Path(folder))
        try:
            plane.start_api()
            define_state_documents(plane)
            asyncio.run(_run(plane, chosen))
        finally:
            plane.daemons.stop_all()


if __name__ == "__main__":
    main()
