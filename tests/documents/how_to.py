"""The how-to pages that have commands, by where a test runs them, in this order."""

from typing import Final

ON_ONE_MACHINE: Final = ("lag", "console", "consumer-groups-of-kafka-4", "quotas", "jobs")
"""These pages are run each beside its own `barnabas up`."""
ON_KUBERNETES: Final = (
    "install",
    "expose",
    "topics",
    "users",
    "consumer-groups",
    "work-queue",
    "monitor",
    "maintenance",
    "scale",
    "disks",
    "roll",
    "recover",
    "uninstall",
)
"""These pages are run one after the other, with one installation of the chart."""
