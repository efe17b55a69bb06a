"""`kubectl barnabas`: what kubectl alone cannot show or do for a Cluster of Barnabas.

status, top, lag and tail run in the operator's pod, which reaches the brokers. The rest asks only the API server.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from barnabas_kubectl import dump, reset, why
from barnabas_kubectl.kubectl import GROUP, Kubectl, KubectlFailed, cluster_of, operator_of

EXIT_FAILED: Final = 1
OF_STATUS: Final = {"status": (), "top": ("--watch",), "lag": ("--groups",)}
"""The options of `barnabas status` by the command of the plugin."""


def main() -> int:
    """Run the command that the arguments name, and return its exit code: 0, 1 if it fails, 2 for wrong arguments."""
    options = _parser().parse_args()
    kubectl = Kubectl(
        tuple(f"--{name}={value}" for name in ("context", "kubeconfig") if (value := vars(options)[name]))
    )
    try:
        namespace = options.namespace or kubectl.namespace()
        return int(options.run(kubectl, namespace, options) or 0)
    except (KubectlFailed, why.NoBroker) as error:
        print(f"kubectl barnabas: {error}", file=sys.stderr)
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubectl barnabas", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = _common()

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, parents=[common], help=text, description=text)
        added.set_defaults(run=run, command=name)
        return added

    status = command("status", _status, "print topics, partitions, groups and lag")
    status.add_argument("-o", "--output", choices=("wide", "json"))
    command("top", _status, "show groups and their lag every 2 s until Ctrl-C")
    command("lag", _status, "print the groups and their lag")
    tail = command("tail", _tail, "print records of a topic as they come")
    tail.add_argument("topic")
    tail.add_argument("--from", dest="start", choices=("earliest", "latest"), default="latest")
    of_pod = command("why", _why, "say why a broker does not restart, or is not ready")
    of_pod.add_argument("pod")
    _add_reset(command("reset", _reset, "reset the offsets of a ConsumerGroup"))
    whole = command("dump", _dump, "write a support archive without secrets")
    whole.add_argument("file", nargs="?", type=Path, help="default: barnabas-NAMESPACE-NAME-TIME.tar.gz")
    return parser


def _common() -> argparse.ArgumentParser:
    """Return the options of all commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-n", "--namespace", help="the namespace of the Cluster; default: that of the context")
    common.add_argument("--context", help="the kubeconfig context")
    common.add_argument("--kubeconfig", help="the path of the kubeconfig file")
    common.add_argument("--operator", metavar="NAMESPACE/NAME", help="the operator's Deployment; default: the only one")
    common.add_argument("-c", "--cluster", help="the Cluster; default: the only one of the namespace")
    return common


def _add_reset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", help="the name of the ConsumerGroup")
    parser.add_argument("--to", type=_position, required=True, help=reset.ALLOWED)
    parser.add_argument("--topic", action="append", default=[], help="a topic to reset; default: all")
    parser.add_argument("--id", help="the id of the request; default: the time")
    parser.add_argument("--dry-run", action="store_true", help="only show the new offsets")


def _position(text: str) -> object:
    try:
        return reset.position(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _status(kubectl: Kubectl, namespace: str, options: argparse.Namespace) -> None:
    output = vars(options).get("output")
    more = (*OF_STATUS[options.command], *((f"--output={output}",) if output else ()))
    _in_the_operator(kubectl, namespace, options, "status", *more)


def _tail(kubectl: Kubectl, namespace: str, options: argparse.Namespace) -> None:
    _in_the_operator(kubectl, namespace, options, "tail", options.topic, f"--from={options.start}")


def _in_the_operator(kubectl: Kubectl, namespace: str, options: argparse.Namespace, name: str, *more: str) -> None:
    """Become `barnabas NAME` in the operator's pod, with a terminal if this process has one."""
    cluster = cluster_of(kubectl, namespace, options.cluster)
    place, deployment = operator_of(kubectl, options.operator)
    terminal = ("-it",) if sys.stdin.isatty() and sys.stdout.isatty() else ()
    command = ("barnabas", name, f"--cluster={cluster}", *more)
    kubectl.become(["exec", *terminal, "-n", place, f"deployment/{deployment}", "--", *command])


def _why(kubectl: Kubectl, namespace: str, options: argparse.Namespace) -> None:
    pod = kubectl.json("get", "pod", options.pod, "-n", namespace)
    cluster = kubectl.json("get", f"clusters.{GROUP}", why.cluster_name(pod), "-n", namespace)
    print(why.why(pod, cluster))


def _reset(kubectl: Kubectl, namespace: str, options: argparse.Namespace) -> int:
    identifier = options.id or time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    wanted = reset.reset_of(identifier, options.to, options.topic, dry_run=options.dry_run)
    group = reset.request(kubectl, namespace, options.group, wanted)
    print("\n".join(reset.report(group)))
    answer = reset.condition(group) or {}
    return 0 if answer.get("status") == "True" or answer.get("reason") == "DryRun" else EXIT_FAILED


def _dump(kubectl: Kubectl, namespace: str, options: argparse.Namespace) -> None:
    cluster = cluster_of(kubectl, namespace, options.cluster)
    try:
        operator = operator_of(kubectl, options.operator)
    except KubectlFailed as error:
        print(f"without the operator's log: {error}", file=sys.stderr)
        operator = None
    now = int(time.time())
    folder = f"barnabas-{cluster.namespace}-{cluster.name}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}"
    found = []
    for each in dump.entries(kubectl, cluster, operator):
        found.append(each)
        print(f"{len(found):>4} files\r", end="", file=sys.stderr, flush=True)
    file = options.file or Path(f"{folder}.tar.gz")
    file.write_bytes(dump.archive(found, folder, now))
    print(dump.contents(found), end="")
    print(f"{file}: {file.stat().st_size:,} bytes; no Secret was read, and values under secret names were replaced")


if __name__ == "__main__":
    sys.exit(main())
