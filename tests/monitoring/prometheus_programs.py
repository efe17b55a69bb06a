"""prometheus and promtool: the machine's own, or those of Debian's package, which is unpacked and not installed.

`python -m monitoring.prometheus_programs` fetches them ahead and prints the folder.
"""

import shutil
from pathlib import Path

from local_kubernetes.debian_package import programs_of


def prometheus_programs() -> Path:
    """The folder with both. Raises CannotStart where they cannot be had."""
    found = shutil.which("prometheus")
    if found and shutil.which("promtool"):
        return Path(found).parent
    return programs_of("prometheus")


if __name__ == "__main__":
    print(prometheus_programs())
