"""The entries of DescribeConfigs that report stray logs."""

from typing import Final

STRAY_LOGS: Final = "barnabas.stray.logs"
"""The name of the entry with the stray logs as `DIRECTORY:BYTES`, separated by commas.

The entry is not a config, and is absent if the broker has no stray logs.
"""

STRAY_LOGS_OFFLINE: Final = "barnabas.stray.logs.offline"
"""The name of the entry with the offline log dirs that have stray logs, separated by commas.

The entry is not a config, and is absent if no offline log dir has stray logs.
"""

STRAY_LOGS_NAMED_MAX: Final = 1_000
"""The maximum number of stray logs in the entry; a broker that lists so many may have more."""


def parse_stray_logs(value: str) -> list[tuple[str, int]]:
    """Return the directory and the bytes of each stray log in the entry of DescribeConfigs."""
    pairs = [each.rpartition(":") for each in value.split(",") if each]
    return [(directory, int(size_bytes)) for directory, _, size_bytes in pairs]
