"""A client's batch looked into, for topics that compact or store with a codec of their own. Pure; run off the loop."""

from collections.abc import Mapping
from typing import Final

from barnabas_broker.wire.compression import Codec
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import BrokenRecords, iterate_records, recompress_batch
from barnabas_core.config.log_config import Compression, LogConfig
from barnabas_core.errors import ApiError, ErrorCode

RECORDS_BYTES_MAX: Final = 100 * 1024 * 1024
"""Uncompressed, of one batch: as much as socket.request.max.bytes lets an uncompressed one have."""

_CODECS: Final[Mapping[Compression, Codec]] = {
    Compression.UNCOMPRESSED: Codec.NONE,
    Compression.GZIP: Codec.GZIP,
    Compression.SNAPPY: Codec.SNAPPY,
    Compression.LZ4: Codec.LZ4,
    Compression.ZSTD: Codec.ZSTD,
}


def inspect_batch(batch: bytes, config: LogConfig) -> bytes:
    """The batch as the topic stores it: with the topic's codec. ApiError for broken records and missing keys."""
    header = parse_header(batch, 0)
    codec = _CODECS.get(config.compression)
    try:
        keyless = sum(record.key is None for record in iterate_records(batch, 0, header, RECORDS_BYTES_MAX))
        if config.compacted and keyless:
            raise ApiError(
                ErrorCode.INVALID_RECORD, f"{keyless} records without a key; cleanup.policy=compact needs keys"
            )
        if codec is None or codec == header.compression:
            return batch
        return bytes(recompress_batch(batch, 0, header, codec, _level(codec, config), RECORDS_BYTES_MAX))
    except BrokenRecords as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error


def _level(codec: Codec, config: LogConfig) -> int | None:
    """gzip's -1 is the library's own default."""
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    level = levels.get(codec)
    return None if level == -1 else level
