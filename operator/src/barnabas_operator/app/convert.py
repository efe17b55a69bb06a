"""`barnabas convert`: convert Strimzi's manifests to Barnabas's, and list the fields without a counterpart."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from barnabas_operator.app.up import manifest_files
from barnabas_operator.planning.strimzi.convert import converted
from barnabas_operator.resources.yaml_documents import yaml_text

EXIT_FAILED: Final = 1
STANDARD_INPUT: Final = "-"


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code: 0, or 1 if a manifest cannot be read or converted."""
    options = _parser().parse_args(arguments)
    try:
        texts = dict(_texts(options.filename))
    except (OSError, UnicodeDecodeError) as error:
        print(f"barnabas convert: {error}", file=sys.stderr)
        return EXIT_FAILED
    conversion = converted(texts)
    for remark in conversion.errors or conversion.notes:
        print(remark, file=sys.stderr)
    if conversion.errors:
        return EXIT_FAILED
    print("---\n".join(map(yaml_text, conversion.manifests)), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barnabas convert",
        description="Print Clusters, Topics and Users that replace Strimzi's Kafka, KafkaNodePool, KafkaTopic and"
        " KafkaUser. Fields without a counterpart are listed on standard error.",
    )
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="PATH",
        help="a file, a folder with .yaml and .yml files, or - for standard input; may be given several times",
    )
    return parser


def _texts(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each manifest file; the name STANDARD_INPUT stands for standard input.

    Raises OSError, UnicodeDecodeError.
    """
    for name in names:
        if name == STANDARD_INPUT:
            yield name, sys.stdin.read()
        else:
            yield from ((str(file), file.read_text(encoding="utf-8")) for file in manifest_files(Path(name)))
