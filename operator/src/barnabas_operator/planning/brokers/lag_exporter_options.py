"""The command line options of a lag exporter."""

from barnabas_kafka.security import Tls
from barnabas_operator.resources.lag_exporter import LagExporter


def name_options(declared: LagExporter) -> list[str]:
    """Return the options of `barnabas lag-exporter` that select topics and groups."""
    return [
        f"--topic.filter={declared.topic_regex}",
        f"--topic.exclude={declared.topic_exclude_regex}",
        f"--group.filter={declared.group_regex}",
        f"--group.exclude={declared.group_exclude_regex}",
    ]


def tls_options(tls: Tls | None) -> list[str]:
    """Return the TLS options of `barnabas lag-exporter`, or none if the brokers have no TLS."""
    if tls is None:
        return []
    files = {"ca-file": tls.ca_file, "cert-file": tls.cert_file, "key-file": tls.key_file}
    return ["--tls.enabled", *(f"--tls.{name}={file}" for name, file in files.items() if file is not None)]
