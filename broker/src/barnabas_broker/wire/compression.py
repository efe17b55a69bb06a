"""The codecs of record batches, by the library cramjam, in the formats that Java clients read.

A broker imports this module with the first batch that it must compress or decompress itself.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final

import cramjam

from barnabas_broker.wire.framing import Buffer
from barnabas_broker.wire.record_batch import BrokenCompression, Codec

Decompressor = Callable[[Buffer, int], Buffer]
Compressor = Callable[[Buffer, int | None], bytes]

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")
_FIRST_BYTES: Final = 64 * 1024
_TOO_SMALL: Final = "failed to write whole buffer"
_GROWTH: Final = 16
"""The factor by which a decompression buffer grows if it is too small.

The first buffer is larger than the compressed data by the same factor, which is enough for most batches.
"""


def decompress(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """Return the decompressed data. Raises BrokenCompression if it is invalid, or larger than `bytes_max` bytes."""
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise BrokenCompression(f"codec {codec} is unknown; allowed are 0 to 4")
    try:
        return decompressor(data, bytes_max)
    except (cramjam.DecompressionError, struct.error) as error:
        raise BrokenCompression(
            f"{Codec(codec).name.lower()} data is invalid or decompresses to more than {bytes_max} bytes: {error}"
        ) from None


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` in the format that Java clients read: snappy in xerial blocks, other codecs in their own frames.

    The level None is the default level of the codec.
    """
    return _COMPRESSORS[codec](data, level)


def _into(decompress_into: Callable[[Buffer, bytearray], int]) -> Decompressor:
    """Return a decompressor whose buffer grows up to the limit, so that small data needs little memory."""

    def decompressed(data: Buffer, bytes_max: int) -> Buffer:
        size = min(bytes_max, max(_FIRST_BYTES, len(data) * _GROWTH))
        while True:
            out = bytearray(size)
            try:
                return memoryview(out)[: decompress_into(data, out)]
            except cramjam.DecompressionError as error:
                if size == bytes_max or _TOO_SMALL not in str(error):
                    raise
            size = min(bytes_max, size * _GROWTH)

    return decompressed


def _snappy(data: Buffer, bytes_max: int) -> Buffer:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _raw_snappy(data, bytes_max)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        (length,) = _INT32.unpack_from(data, position)
        end = position + 4 + length
        if length < 0 or end > len(data):
            raise BrokenCompression(f"a snappy block has {length} bytes, but only {len(data) - position - 4} are left")
        out += _raw_snappy(data[position + 4 : end], bytes_max - len(out))
        position = end
    return out


def _raw_snappy(data: Buffer, bytes_max: int) -> Buffer:
    length = cramjam.snappy.decompress_raw_len(data)
    if length > bytes_max:
        raise BrokenCompression(f"the snappy data decompresses to {length} bytes; at most {bytes_max} are allowed")
    return bytes(cramjam.snappy.decompress_raw(data))


def _compress_xerial(data: Buffer, _level: int | None) -> bytes:
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """Compress to independent LZ4 blocks; Java clients refuse linked blocks, which are the library's default."""
    compressor = cramjam.lz4.Compressor(level=level, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _with_level(compressor: Callable[..., cramjam.Buffer]) -> Compressor:
    return lambda data, level: bytes(compressor(data) if level is None else compressor(data, level))


_DECOMPRESSORS: Final[Mapping[int, Decompressor]] = {
    Codec.GZIP: _into(cramjam.gzip.decompress_into),
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _into(cramjam.lz4.decompress_into),
    Codec.ZSTD: _into(cramjam.zstd.decompress_into),
}
_COMPRESSORS: Final[Mapping[int, Compressor]] = {
    Codec.GZIP: _with_level(cramjam.gzip.compress),
    Codec.SNAPPY: _compress_xerial,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _with_level(cramjam.zstd.compress),
}
