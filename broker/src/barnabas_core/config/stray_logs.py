"""The reports of logs that brokers have set aside, in DescribeConfigs."""

from typing import Final

STRAY_LOGS: Final = "barnabas.stray.logs"
"""The entry with them, which is no config and exists only if there are some: `DIRECTORY:BYTES`, with commas."""

STRAY_LOGS_OFFLINE: Final = "barnabas.stray.logs.offline"
"""The entry with the offline log dirs that have some, separated by commas; no config, and absent if there are none."""

STRAY_LOGS_NAMED_MAX: Final = 1_000
"""A broker that names so many may have set aside others."""


def parse_stray_logs(value: str) -> list[tuple[str, int]]:
    """The directories of a report, each with its bytes."""
    pairs = [each.rpartition(":") for each in value.split(",") if each]
    return [(directory, int(size_bytes)) for directory, _, size_bytes in pairs]
