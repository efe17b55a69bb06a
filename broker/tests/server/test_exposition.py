"""Prometheus' own parser reads back the values that /metrics renders."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from scrape import scrape

from barnabas_broker.server.metrics.exposition import Family, Sample, labels, render
from barnabas_core.loop_turns import METRIC_SAMPLES

numbers = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False))


@given(st.lists(st.tuples(st.text(), numbers), max_size=20))
def test_labels_and_values_survive_the_text_format(pairs: list[tuple[str, float]]) -> None:
    samples = [Sample(labels(topic=topic, partition=index), value) for index, (topic, value) in enumerate(pairs)]
    page = scrape([Family("kafka_log_log_size", "gauge", "Bytes", lambda: samples)])
    (family,) = text_string_to_metric_families(page)
    read = [(sample.labels["topic"], sample.value) for sample in family.samples]
    assert read == [(topic, float(value)) for topic, value in pairs]


async def _turns_while_rendering(samples: Callable[[], Iterable[Sample | None]]) -> tuple[int, int]:
    """Return how many turns other work had, and the size of the largest piece of the page."""

    async def rendered() -> int:
        return max([len(piece) async for piece in render([Family("many", "gauge", "Many", samples)])])

    rendering = asyncio.ensure_future(rendered())
    turns = 0
    while not rendering.done():
        await asyncio.sleep(0)
        turns += 1
    return turns, rendering.result()


async def test_a_long_page_is_rendered_in_pieces_with_turns_for_other_work_between_them() -> None:
    count = 20 * METRIC_SAMPLES
    turns, piece_bytes = await _turns_while_rendering(lambda: (Sample(labels(n=n), n) for n in range(count)))
    assert turns >= 20
    assert piece_bytes < 30 * METRIC_SAMPLES


async def test_a_family_that_counts_for_long_before_its_first_sample_leaves_turns_to_other_work() -> None:
    def samples() -> Iterator[Sample | None]:
        yield from repeat(None, 20 * METRIC_SAMPLES)
        yield Sample("", 7)

    turns, _ = await _turns_while_rendering(samples)
    assert turns >= 20
