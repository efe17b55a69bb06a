"""What a broker tells by DescribeConfigs of logs that it has set aside, and who asks for it."""

from typing import Final

STRAY_LOGS: Final = "barnabas.stray.logs"
"""No setting, and there only where there are some: `DIRECTORY:BYTES`, separated by commas."""

STRAY_LOGS_OFFLINE: Final = "barnabas.stray.logs.offline"
"""No setting, and there only where some of them are in log dirs that are offline: these, separated by commas."""

STRAY_LOGS_NAMED_MAX: Final = 1_000
"""A broker that names so many may have set aside others."""


def parse_stray_logs(value: str) -> list[tuple[str, int]]:
    """The directories of a report, each with its bytes."""
    pairs = [each.rpartition(":") for each in value.split(",") if each]
    return [(directory, int(size_bytes)) for directory, _, size_bytes in pairs]
