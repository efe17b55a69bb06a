"""`barnabas up`: run the cluster and the topics of manifest files until Ctrl-C or SIGTERM."""

import argparse
import asyncio
import logging
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas_kafka.addresses import PORT_MAX
from barnabas_operator.app import child_process as data_dirs
from barnabas_operator.app.child_process import DataDir, DataDirHeld
from barnabas_operator.app.cluster_options import mute_kafka_python
from barnabas_operator.app.output import Log, console
from barnabas_operator.app.supervisor import Supervisor, UpFailed, read_manifests
from barnabas_operator.resources.yaml_documents import Manifests

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
DRIFT_CHECK_S: Final = 30.0
CONSOLE_PORT: Final = 9080


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 0 after a signal, 1 after a failure, 2 for wrong options or manifests."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    mute_kafka_python()
    log = Log(console())
    if not options.file.exists():
        log.say(f"--file {options.file}: there is no such file or directory")
        return EXIT_USAGE
    manifests = read_manifests(options.file)
    if manifests.errors:
        log.complain("the manifests are invalid; nothing was started:", manifests.errors)
        return EXIT_USAGE
    try:
        data_dir = DataDir(options.data_dir)
    except (DataDirHeld, OSError) as error:
        log.say(f"--data-dir: {error}")
        return EXIT_FAILED
    try:
        asyncio.run(_run(options, data_dir, manifests, log))
    except UpFailed as error:
        log.say(str(error))
        return EXIT_FAILED
    finally:
        data_dir.release()
    return 0


async def _run(options: argparse.Namespace, data_dir: DataDir, manifests: Manifests, log: Log) -> None:
    supervisor = Supervisor(options.file, data_dir, log, options.drift_check_s, options.console)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
    await supervisor.run(manifests)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="barnabas up", description=__doc__)
    parser.add_argument("-f", "--file", type=Path, required=True, help="a directory of manifests, or one manifest")
    parser.add_argument("--data-dir", type=Path, default=data_dirs.DEFAULT, help="default: %(default)s")
    parser.add_argument(
        "--drift-check-s",
        type=float,
        default=DRIFT_CHECK_S,
        help="the seconds between two checks of the topics while no manifest changes; default: %(default)s",
    )
    parser.add_argument(
        "--console",
        type=_port,
        nargs="?",
        const=CONSOLE_PORT,
        metavar="PORT",
        help=f"serve the console, with pages of the cluster, at this port of the machine, or a free one; default "
        f"without PORT: {CONSOLE_PORT}",
    )
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a port from 1 to {PORT_MAX}")
    return int(text)
