"""The chart of a release: its images, and the OCI artifact that `helm install oci://...` takes. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final

from release.errors import ReleaseError
from release.layout import Content, Layout, artifact

CONFIG: Final = "application/vnd.cncf.helm.config.v1+json"
ARCHIVE: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
IN_VALUES: Final = {
    "\n  repository: docker.io/library/barnabas-operator\n": "\n  repository: {0}/barnabas-operator\n",
    "\n  tag: dev\n": "\n  tag: {1}\n",
    "\nbrokerImage: docker.io/library/barnabas-broker:dev\n": "\nbrokerImage: {0}/barnabas-broker:{1}\n",
    "\njobsImage: docker.io/library/barnabas-jobs:dev\n": "\njobsImage: {0}/barnabas-jobs:{1}\n",
}
"""Lines of values.yaml, each with its line in a release of that registry and tag."""


def with_images(values: str, registry: str, tag: str) -> str:
    """Return values.yaml with the images of a release in place of those that a checkout builds."""
    for before, after in IN_VALUES.items():
        if values.count(before) != 1:
            raise ReleaseError(f"helm/barnabas/values.yaml does not say {before.strip()!r} once: mend release/chart.py")
        values = values.replace(before, after.format(registry, tag))
    return values


def chart_layout(metadata: Mapping[str, Any], archive: bytes) -> Layout:
    """Return the manifest of a packaged chart with what its Chart.yaml says."""
    about = {
        "org.opencontainers.image.title": metadata["name"],
        "org.opencontainers.image.version": metadata["version"],
        "org.opencontainers.image.description": metadata["description"],
    }
    return artifact(Content(CONFIG, json.dumps(metadata).encode()), [Content(ARCHIVE, archive)], about)
