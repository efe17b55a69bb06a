"""The names under which DescribeConfigs of a broker lists its stray logs."""

from typing import Final

STRAY_LOGS: Final = "barnabas.stray.logs"
"""The name under which DescribeConfigs of a broker lists stray logs, as `DIRECTORY:BYTES` separated by commas.

The name is not a config, and is absent if the broker has no stray logs.
"""

STRAY_LOGS_OFFLINE: Final = "barnabas.stray.logs.offline"
"""The name under which DescribeConfigs of a broker lists offline log dirs with stray logs, separated by commas.

The name is not a config, and is absent if no offline log dir has stray logs.
"""

STRAY_LOGS_NAMED_MAX: Final = 1_000
"""The maximum number of stray logs that DescribeConfigs lists, even if the broker has more."""


def parse_stray_logs(value: str) -> list[tuple[str, int]]:
    """Parse the value of STRAY_LOGS; return the directory and the size in bytes of each stray log."""
    pairs = [each.rpartition(":") for each in value.split(",") if each]
    return [(directory, int(size_bytes)) for directory, _, size_bytes in pairs]
