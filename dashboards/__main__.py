"""`python -m dashboards FOLDER` writes each dashboard as a file of Grafana's JSON."""

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import brokers, lag, maintenance, objectives, operator, share, topics


def main(folder: Path) -> None:
    """Write the files, over those that exist."""
    for name, made in (
        ("brokers", brokers.made()),
        ("topics", topics.made()),
        ("consumer-lag", lag.made()),
        ("share-groups", share.made()),
        ("objectives", objectives.made()),
        ("maintenance", maintenance.made()),
        ("operator", operator.made()),
    ):
        text = json.dumps(made, cls=JSONEncoder, indent=1, sort_keys=True)
        (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
