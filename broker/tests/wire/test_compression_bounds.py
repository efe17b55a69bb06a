"""Decompression takes only the memory that the records need, and stops at the limit that a topic sets."""

import tracemalloc

import pytest

from barnabas_broker.wire.record_batch import BrokenCompression, Codec
from barnabas_broker.wire.records import compress, decompress

LARGEST_SETTING = 2**31 - 9
COMPRESSING = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
REPETITIVE = b"carrier" * 300_000


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_small_batch_takes_little_memory_under_a_large_limit(codec: Codec) -> None:
    data = compress(codec, b"carrier" * 100)
    tracemalloc.start()
    unpacked = decompress(codec, data, LARGEST_SETTING)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bytes(unpacked) == b"carrier" * 100
    assert peak_bytes < 1 << 20


@pytest.mark.parametrize("codec", COMPRESSING)
def test_data_that_unpacks_to_much_more_than_estimated_is_unpacked_whole(codec: Codec) -> None:
    data = compress(codec, REPETITIVE)
    assert bytes(decompress(codec, data, LARGEST_SETTING)) == REPETITIVE
    assert bytes(decompress(codec, data, len(REPETITIVE))) == REPETITIVE
    with pytest.raises(BrokenCompression, match=f"more than {len(REPETITIVE) - 1} bytes|are allowed"):
        decompress(codec, data, len(REPETITIVE) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_an_incomplete_frame_is_refused_without_trying_larger_buffers(codec: Codec) -> None:
    data = compress(codec, REPETITIVE)[:-7]
    tracemalloc.start()
    with pytest.raises(BrokenCompression):
        decompress(codec, data, LARGEST_SETTING)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 64 << 20
