"""We read the frames that other implementations write, and they read ours."""

import gzip
import struct
from collections.abc import Callable

import kafka.codec
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.wire.compression import XERIAL_MAGIC
from barnabas_broker.wire.record_batch import BrokenCompression, Codec
from barnabas_broker.wire.records import compress, decompress

BYTES_MAX = 1 << 24
contents = st.binary(min_size=1, max_size=500) | st.builds(
    lambda data, times: data * times, st.binary(min_size=1, max_size=40), st.integers(1, 4000)
)
Coder = Callable[[bytes], bytes]

OTHERS: list[tuple[Codec, Coder, Coder]] = [
    (Codec.GZIP, gzip.compress, gzip.decompress),
    (Codec.LZ4, lz4.frame.compress, lz4.frame.decompress),
    (Codec.LZ4, kafka.codec.lz4_encode, kafka.codec.lz4_decode),
    (
        Codec.ZSTD,
        zstandard.ZstdCompressor().compress,
        lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    ),
    (Codec.SNAPPY, kafka.codec.snappy_encode, kafka.codec.snappy_decode),
]


@pytest.mark.parametrize(("codec", "theirs", "back"), OTHERS)
@settings(max_examples=30)
@given(data=contents)
def test_we_and_other_implementations_decompress_each_others_data(
    codec: Codec, theirs: Coder, back: Coder, data: bytes
) -> None:
    assert bytes(back(compress(codec, data))) == data
    assert bytes(decompress(codec, theirs(data), BYTES_MAX)) == data


@given(data=contents)
def test_snappy_without_xerials_frame_as_librdkafka_writes_it_is_read(data: bytes) -> None:
    assert bytes(decompress(Codec.SNAPPY, snappy.compress(data), BYTES_MAX)) == data


def test_snappy_is_written_in_xerials_blocks_of_32_kib() -> None:
    framed = compress(Codec.SNAPPY, bytes(100_000))
    assert framed[:16] == XERIAL_MAGIC + struct.pack(">ii", 1, 1)
    position, sizes = 16, []
    while position < len(framed):
        (length,) = struct.unpack_from(">i", framed, position)
        sizes.append(len(snappy.decompress(framed[position + 4 : position + 4 + length])))
        position += 4 + length
    assert sizes == [32768, 32768, 32768, 1696]


def test_lz4_blocks_are_independent_as_java_requires() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, b"carrier" * 50_000))
    assert info["block_linked"] is False


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 9), (Codec.LZ4, 12), (Codec.ZSTD, 19)])
def test_a_higher_compression_level_makes_the_data_smaller(codec: Codec, level: int) -> None:
    data = b"".join(b"flight %d of carrier %d, " % (number, number * number % 97) for number in range(5000))
    assert len(compress(codec, data, level)) < len(compress(codec, data, 1))


@pytest.mark.parametrize("codec", [5, 7, -1])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(BrokenCompression, match="0 to 4"):
        decompress(codec, b"", 10)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@settings(max_examples=100)
@given(junk=st.binary(max_size=200))
def test_random_bytes_are_refused_or_unpack_to_few_bytes(codec: Codec, junk: bytes) -> None:
    for data in (junk, XERIAL_MAGIC + bytes(8) + junk, compress(codec, b"abc" * 50)[:10] + junk):
        try:
            assert len(decompress(codec, data, 1000)) <= 1000
        except BrokenCompression:
            continue


@pytest.mark.parametrize("length", [-1, -5, 2**31 - 1, 5])
def test_an_xerial_block_that_does_not_fit_is_refused(length: int) -> None:
    with pytest.raises(BrokenCompression):
        decompress(Codec.SNAPPY, XERIAL_MAGIC + bytes(8) + struct.pack(">i", length) + b"abc", 1000)
