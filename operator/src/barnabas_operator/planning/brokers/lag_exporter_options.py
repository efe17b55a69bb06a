"""The options of a lag exporter for the names that its Cluster wants. Pure."""

from barnabas_kafka.security import Tls
from barnabas_operator.resources.lag_exporter import LagExporter


def name_options(declared: LagExporter) -> list[str]:
    """The options of `barnabas lag-exporter` that name groups and topics."""
    return [
        f"--topic.filter={declared.topic_regex}",
        f"--topic.exclude={declared.topic_exclude_regex}",
        f"--group.filter={declared.group_regex}",
        f"--group.exclude={declared.group_exclude_regex}",
    ]


def tls_options(tls: Tls | None) -> list[str]:
    """Return the options with which it connects by a certificate; none where the brokers are open."""
    if tls is None:
        return []
    files = {"ca-file": tls.ca_file, "cert-file": tls.cert_file, "key-file": tls.key_file}
    return ["--tls.enabled", *(f"--tls.{name}={file}" for name, file in files.items() if file is not None)]
