"""Write what Apache Kafka's assignors answer about 100 random groups, for the tests of ours; needs a JDK."""

import json
import random
from typing import Final

from assignors.groups import ANSWERS, by_apache_kafka, random_group

GROUPS: Final = 100


def main() -> None:
    """Write the file."""
    chance = random.Random(0)
    groups = [random_group(chance) for _ in range(GROUPS)]
    lines = [json.dumps([group, answer]) for group, answer in zip(groups, by_apache_kafka(groups), strict=True)]
    ANSWERS.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
