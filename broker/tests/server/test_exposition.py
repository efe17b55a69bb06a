"""What /metrics renders is what Prometheus' own parser reads back."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from barnabas_broker.server.metrics.exposition import SLICE_LINES, Family, Sample, labels, render

numbers = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False))


@given(st.lists(st.tuples(st.text(), numbers), max_size=20))
def test_labels_and_values_survive_the_text_format(pairs: list[tuple[str, float]]) -> None:
    samples = [Sample(labels(topic=topic, partition=index), value) for index, (topic, value) in enumerate(pairs)]
    page = asyncio.run(render([Family("kafka_log_log_size", "gauge", "Bytes", lambda: samples)])).decode()
    (family,) = text_string_to_metric_families(page)
    read = [(sample.labels["topic"], sample.value) for sample in family.samples]
    assert read == [(topic, float(value)) for topic, value in pairs]


async def _turns_while_rendering(lines: int) -> int:
    rendering = asyncio.ensure_future(
        render([Family("many", "gauge", "Many", lambda: (Sample(labels(n=n), n) for n in range(lines)))])
    )
    turns = 0
    while not rendering.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_a_long_page_lets_other_work_through() -> None:
    assert asyncio.run(_turns_while_rendering(20 * SLICE_LINES)) >= 20
