"""Finds prometheus and promtool: those of the machine, or of Debian's package, unpacked and not installed.

`python -m monitoring.prometheus_programs` fetches them ahead and prints the folder.
"""

import shutil
from pathlib import Path

from local_kubernetes.debian_package import programs_of


def prometheus_programs() -> Path:
    """Return the folder with both. Raises CannotStart if they are missing and cannot be fetched."""
    found = shutil.which("prometheus")
    if found and shutil.which("promtool"):
        return Path(found).parent
    return programs_of("prometheus")


if __name__ == "__main__":
    print(prometheus_programs())
