"""The environment variables of `barnabas operator`."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import Meta

from barnabas_core.web_files import WebFiles, contradictions
from barnabas_operator.manifests.kube_object import Neighbours
from barnabas_operator.reconcile.operator_settings import OperatorSettings

Seconds = Annotated[float, Meta(ge=0.1, le=86_400, description="a number of seconds from 0.1 to 86400")]
Level = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR"], Meta(description="one of DEBUG, INFO, WARNING and ERROR")
]
PORT: Final = "(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4})"
HostAndPort = Annotated[str, Meta(pattern=f"^[^ ]*:{PORT}$", description="HOST:PORT, with a port up to 65535")]
LeaseOrNone = Annotated[str, Meta(pattern="^([^/ ]+/[^/ ]+)?$", description="NAMESPACE/NAME, or nothing")]
MonitorLabels = Annotated[dict[str, str], Meta(description='labels as JSON, such as {"release": "prometheus"}')]
WEB_NAMES: Final = WebFiles("HTTP_CERTIFICATES", "HTTP_CERTIFICATES", "HTTP_TOKEN_FILE")


class InvalidVariable(Exception):
    """The error that a variable is invalid; the message has the variable's name, its value and what is allowed."""


class Variables(msgspec.Struct, frozen=True, rename=str.upper):
    """The operator's environment variables; `--help` describes each."""

    watch_namespaces: str = ""
    broker_image: str = "barnabas-broker:dev"
    operator_image: str = "barnabas-operator:dev"
    jobs_image: str = "barnabas-jobs:dev"
    image_pull_secrets: str = ""
    bootstrap: str = ""
    drift_seconds: Seconds = 60.0
    group_look_seconds: Seconds = 15.0
    run_look_seconds: Seconds = 5.0
    lease: LeaseOrNone = ""
    pod_namespace: str = ""
    release: str = ""
    pod_name: str = ""
    pod_monitor_labels: MonitorLabels = {}
    http_listener: HostAndPort = ":8080"
    http_certificates: str = ""
    http_token_file: str = ""
    webhook_certificates: str = ""
    log_level: Level = "INFO"

    def web_files(self) -> WebFiles:
        """Return the paths of the certificate, its key and the bearer token that protect the pages."""
        if not self.http_certificates:
            return WebFiles(token=self.http_token_file)
        folder = self.http_certificates
        return WebFiles(f"{folder}/tls.crt", f"{folder}/tls.key", self.http_token_file)

    def settings(self, identity: str) -> OperatorSettings:
        """Return the settings of the operator that holds its lease as `identity`."""
        return OperatorSettings(
            broker_image=self.broker_image,
            operator_image=self.operator_image,
            jobs_image=self.jobs_image,
            pull_secrets=_names(self.image_pull_secrets),
            namespaces=_names(self.watch_namespaces),
            bootstrap=self.bootstrap,
            drift_s=self.drift_seconds,
            group_look_s=self.group_look_seconds,
            run_look_s=self.run_look_seconds,
            lease=self.lease,
            identity=identity,
            neighbours=Neighbours(self.pod_namespace, self.release, self.pod_monitor_labels),
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def read_variables(environment: Mapping[str, str]) -> Variables:
    """Read the variables, with the defaults that `--help` shows.

    Raises InvalidVariable if a value is not allowed, alone or together with another variable.
    """
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(Variables)}
    given = {name: _value(name, environment[name], kind) for name, kind in fields.items() if name in environment}
    variables = msgspec.convert(given, Variables)
    for name, value, allowed in contradictions(variables.web_files(), WEB_NAMES):
        raise InvalidVariable(f"{name}={value} is refused; the variable {allowed}")
    return variables


def _value(name: str, text: str, kind: object) -> object:
    try:
        if kind is MonitorLabels:
            return msgspec.json.decode(text, type=dict[str, str])
        return msgspec.convert(text, kind, strict=False)
    except msgspec.MsgspecError as error:
        raise InvalidVariable(
            f"the environment variable {name} is {text}; allowed: {get_args(kind)[1].description}"
        ) from error
