"""The how-to pages that have commands, by where a test runs them, in this order."""

from typing import Final

ON_ONE_MACHINE: Final = ("lag", "quotas", "jobs")
"""Each beside a `barnabas up` of its own."""
ON_KUBERNETES: Final = (
    "install",
    "expose",
    "topics",
    "users",
    "consumer-groups",
    "monitor",
    "maintenance",
    "scale",
    "disks",
    "roll",
    "recover",
    "uninstall",
)
"""One after the other, with one installation of the chart."""
