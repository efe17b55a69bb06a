"""The series with which the alerts about certificates fire, and those of a healthy cluster."""

from typing import Final

from monitoring.rule_cases import RESOURCE, Case

WEEK_S: Final = 7 * 86400
EXPIRES: Final = "barnabas_certificate_expiration_timestamp_seconds"
BROKERS: Final = 'resource_namespace="kafka",cluster="main",certificate="main-broker-certificates"'
OF_OPERATOR: Final = f'{EXPIRES}{{{RESOURCE},certificate="main-broker-certificates"}}'
CASES: Final = (
    # At first a week and five minutes are left.
    Case("CertificateExpiresSoon", {OF_OPERATOR: f"{WEEK_S + 300}x60"}, 20, 22, BROKERS, "critical"),
    # The first certificate is not renewed, the second one is.
    Case(
        "CertificateExpiresSoon",
        {
            OF_OPERATOR: f"{WEEK_S}x60",
            f'{EXPIRES}{{{RESOURCE},certificate="main-operator"}}': f"{WEEK_S}x9 {2 * WEEK_S}x60",
        },
        14,
        16,
        BROKERS,
        "critical",
    ),
)
WELL: Final = {OF_OPERATOR: f"{2 * WEEK_S}x600"}
