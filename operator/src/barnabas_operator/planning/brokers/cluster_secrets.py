"""The Secrets of a secured Cluster, which hold its certificate authorities and the certificates that these have signed.

The certificates are those of the brokers and of the Cluster's own clients. What to write depends only on the current
content of the Secrets, so that an operator that is killed between two writes continues after its restart.
"""

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from typing import Final, NamedTuple

from cryptography import x509

from barnabas_operator.certificates import (
    Authority,
    Pem,
    canonical_host,
    certificates_in,
    hosts_of,
    is_current,
    renewed_at,
)
from barnabas_operator.planning.brokers.authorities import (
    AuthorityPlan,
    AuthoritySecrets,
    Data,
    plan_authority,
    plan_given,
)
from barnabas_operator.planning.brokers.broker_security import ADMINISTRATOR, login_of, mechanism_of
from barnabas_operator.planning.brokers.local_properties import properties_text
from barnabas_operator.planning.brokers.pod_properties import (
    BROKER_PEM,
    CLIENTS_AUTHORITY,
    CLUSTER_AUTHORITY,
    ORGANIZATION,
    client_settings,
    companion_names,
    has_administrator,
    needs_password,
    own_names,
)
from barnabas_operator.planning.brokers.pods import ExternalAccess, bootstrap_servers, node_host
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.object_names import (
    AUTHORITIES,
    CLIENT_PROPERTIES,
    KEYSTORE,
    SETTINGS,
    administrator_name,
    bootstrap_name,
    broker_certificates_name,
    brokers_name,
    certificate_name,
    clients_authority_name,
    cluster_authority_name,
    lag_exporter_name,
    operator_certificate_name,
    service_host,
)
from barnabas_operator.resources.cluster import Cluster, Listener
from barnabas_operator.resources.kind import Json
from barnabas_operator.resources.security import CertificateAuthority, CertificateStatus


def certificate_status(name: str, certificate: x509.Certificate, *, is_given: bool = False) -> CertificateStatus:
    """Return the expiry and renewal time of a certificate; certificates that the user provides are never renewed."""
    renewal = None if is_given else _text(renewed_at(certificate))
    return CertificateStatus(name=name, not_after=_text(certificate.not_valid_after_utc), renewal_time=renewal)


def with_users(
    own: tuple[CertificateStatus, ...] | None, users: Iterable[Json]
) -> tuple[CertificateStatus, ...] | None:
    """Return the Cluster's `own` certificates and the User certificate that expires first, or None if `own` is None."""
    found = (each.get("status", {}).get("certificate") for each in users)
    first = sorted((each["notAfter"], each["name"], each["renewalTime"]) for each in found if each)[:1]
    return own and (*own, *(CertificateStatus(name=name, not_after=end, renewal_time=at) for end, name, at in first))


def _text(moment: dt.datetime) -> str:
    """Return a moment as a Kubernetes `Time`; sorting such strings sorts them by time."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


CERTIFICATES_IN: Final = frozenset({BROKER_PEM, KEYSTORE, "tls.crt", "user.crt"})
"""The keys under which Secrets hold a certificate; a Secret has at most one of these keys."""
DOMAIN: Final = "cluster.local"
"""The default domain of Kubernetes clusters."""
NODE_NAMES_BYTES_MAX: Final = 8_192
"""The bytes that the addresses of nodes may take in the brokers' certificate.

Java clients accept handshake messages of 32 KiB at most, and each handshake carries the certificate.
"""
_NAME_OVERHEAD_BYTES: Final = 2
"""The bytes of tag and length before each name of a certificate."""


class WantedSecret(NamedTuple):
    """The wanted content and annotations of a Secret.

    `outlives` is True if the Secret has no owner reference, so that Kubernetes does not delete it with the Cluster.
    """

    name: str
    data: Data
    outlives: bool = False
    marks: Mapping[str, str] = {}


class SecretsPlan(NamedTuple):
    """The Secrets in the order in which they are written, and the expiry times of their certificates."""

    secrets: tuple[WantedSecret, ...]
    certificates: tuple[CertificateStatus, ...]

    @property
    def by_name(self) -> Mapping[str, Data]:
        """Return the wanted content of each Secret."""
        return {each.name: each.data for each in self.secrets}


class Moment(NamedTuple):
    """The input of a plan besides the Cluster: the content and the annotations of existing Secrets, by name.

    `foreign` are the names of Secrets that do not belong to the Cluster.
    """

    found: Mapping[str, Data]
    marks: Mapping[str, Mapping[str, str]]
    now: dt.datetime
    new_password: Callable[[], str]
    foreign: Set[str] = frozenset()


def secret_names(cluster: Cluster) -> tuple[str, ...]:
    """Return the names of all Secrets of a secured Cluster."""
    name = cluster.metadata.name
    authorities = (cluster_authority_name(name), clients_authority_name(name))
    own = (broker_certificates_name(name), operator_certificate_name(name), administrator_name(name))
    return (*authorities, *map(certificate_name, authorities), *own, *_companions(cluster))


def plan_secrets(cluster: Cluster, hosts: Set[str], external: ExternalAccess, moment: Moment) -> SecretsPlan | Refusal:
    """Return the wanted content of all Secrets, or a refusal if an authority is invalid.

    `hosts` holds the host names and addresses for the certificate of the brokers, from `broker_hosts`.
    """
    name = cluster.metadata.name
    authorities = []
    spec, found = cluster.spec, (cluster_authority_name(name), clients_authority_name(name))
    for each, declared in zip(found, (spec.cluster_ca, spec.clients_ca), strict=True):
        plan = _authority(each, declared, moment)
        if isinstance(plan, Refusal):
            return plan
        authorities.append((each, plan))
    (_, of_cluster), (_, of_clients) = authorities
    kept = [
        wanted
        for each, plan in authorities
        for wanted in (
            WantedSecret(each, plan.key, outlives=True, marks=plan.marks),
            WantedSecret(certificate_name(each), plan.certificate, outlives=True),
        )
        if wanted.name not in plan.given
    ]
    made = [
        WantedSecret(broker_certificates_name(name), _of_brokers(cluster, hosts, of_cluster, of_clients, moment)),
        WantedSecret(operator_certificate_name(name), _of_operator(cluster, of_cluster, moment)),
    ]
    if has_administrator(cluster):
        data = _of_administrator(cluster, external, of_cluster, of_clients, moment)
        made.append(WantedSecret(administrator_name(name), data))
    made += [WantedSecret(each, _of_companion(cluster, each, of_cluster, moment)) for each in _companions(cluster)]
    ends = [certificate_status(each, plan.signer.certificate, is_given=bool(plan.given)) for each, plan in authorities]
    return SecretsPlan((*kept, *made), (*ends, *_ends(made)))


def _companions(cluster: Cluster) -> tuple[str, ...]:
    """Return the names of the Secrets for MaintenanceJobs and, if the Cluster declares one, the lag exporter."""
    exporter, runs = companion_names(cluster)
    return (runs,) if cluster.spec.lag_exporter is None else (exporter, runs)


def _ends(made: Iterable[WantedSecret]) -> Iterator[CertificateStatus]:
    """Yield the expiry times of the certificates in the given Secrets."""
    for each in made:
        for key in CERTIFICATES_IN & each.data.keys():
            (certificate,) = certificates_in(each.data[key].decode())
            yield certificate_status(each.name, certificate)


def given_secrets(cluster: Cluster) -> frozenset[str]:
    """Return the names of the Secrets that the user provides; the Cluster need not own these Secrets."""
    name, spec = cluster.metadata.name, cluster.spec
    declared = {cluster_authority_name(name): spec.cluster_ca, clients_authority_name(name): spec.clients_ca}
    given = {each for each, authority in declared.items() if not authority.generate_certificate_authority}
    return frozenset(given | set(map(certificate_name, given)))


def _authority(name: str, declared: CertificateAuthority, moment: Moment) -> AuthorityPlan | Refusal:
    certificate = certificate_name(name)
    secrets = AuthoritySecrets(moment.found.get(name), moment.found.get(certificate), moment.marks.get(name, {}))
    if declared.generate_certificate_authority:
        return plan_authority(name, secrets, moment.now, moment.new_password)
    makes = certificate not in moment.foreign
    return plan_given(name, secrets, moment.now, moment.new_password, makes_certificate=makes)


class NodeNames(NamedTuple):
    """The node addresses for the brokers' certificate; `left_out` says why it lacks some, and is empty otherwise."""

    hosts: frozenset[str] = frozenset()
    left_out: str = ""


def node_names(cluster: Cluster, nodes: Mapping[str, Mapping[str, str]], of_brokers: Collection[str]) -> NodeNames:
    """Return the addresses that brokers advertise on these nodes, or on `of_brokers` only if all are too many.

    `nodes` holds the addresses of each node by type.
    """
    kinds = {each.preferred_node_port_address_type for each in cluster.spec.listeners if each.is_at_node}
    by_node = {name: {node_host(found, "", kind) for kind in kinds} - {""} for name, found in nodes.items()}
    every = frozenset().union(*by_node.values())
    size = sum(len(host) + _NAME_OVERHEAD_BYTES for host in every)
    if size <= NODE_NAMES_BYTES_MAX:
        return NodeNames(every)
    some = frozenset().union(*(by_node.get(name, set()) for name in of_brokers))
    why = (
        f"the brokers' certificate names the addresses of {len(set(of_brokers) & by_node.keys())} nodes with brokers, "
        f"because those of all {len(nodes)} nodes take {size} bytes; allowed: {NODE_NAMES_BYTES_MAX}. "
        "It is issued again when a broker moves to another node"
    )
    return NodeNames(some, why)


def broker_hosts(cluster: Cluster, external: ExternalAccess, node_addresses: Set[str]) -> frozenset[str]:
    """Return the host names and IP addresses that the certificate of the brokers must name."""
    namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
    inside = (bootstrap_name(name), brokers_name(name), f"*.{brokers_name(name)}")
    domains = (f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.{DOMAIN}")
    services = {f"{service}{domain}" for service in inside for domain in domains} | {bootstrap_name(name)}
    listeners = cluster.spec.listeners
    declared = {each.advertised_host for each in listeners if each.advertised_host}
    declared |= {host for each in listeners for host in each.alternative_names}
    balancers = {*external.balancer_hosts.values(), *external.bootstrap_hosts}
    hosts = services | declared | node_addresses | balancers
    return frozenset(canonical_host(each) for each in hosts if each.isascii())


def _of_brokers(
    cluster: Cluster, hosts: Set[str], of_cluster: AuthorityPlan, of_clients: AuthorityPlan, moment: Moment
) -> Data:
    """Return the content of the brokers' Secret: the certificate that they share, and the CAs that they trust."""
    before = moment.found.get(broker_certificates_name(cluster.metadata.name), {})
    common_name, _ = own_names(cluster)
    keystore = before.get(BROKER_PEM, b"")
    if not _holds(keystore, hosts, of_cluster.signer, moment.now):
        keystore = of_cluster.signer.issue(common_name, sorted(hosts), ORGANIZATION).both.encode()
    return {
        BROKER_PEM: keystore,
        CLUSTER_AUTHORITY: of_cluster.trusted.encode(),
        CLIENTS_AUTHORITY: of_clients.trusted.encode(),
    }


def _of_operator(cluster: Cluster, of_cluster: AuthorityPlan, moment: Moment) -> Data:
    before = moment.found.get(operator_certificate_name(cluster.metadata.name), {})
    _, common_name = own_names(cluster)
    pem = _user_pem(before, ("tls.crt", "tls.key"), common_name, of_cluster.signer, moment, ORGANIZATION)
    return {"tls.crt": pem.certificate.encode(), "tls.key": pem.key.encode(), "ca.crt": of_cluster.trusted.encode()}


def _of_companion(cluster: Cluster, name: str, of_cluster: AuthorityPlan, moment: Moment) -> Data:
    """Return the content of the Secret of the lag exporter or of maintenance runs.

    If the Cluster has `spec.metrics`, the certificate of the lag exporter contains the DNS name of its Service.
    """
    serves = cluster.spec.metrics is not None and name == lag_exporter_name(cluster.metadata.name)
    hosts = {service_host(name, cluster.metadata.namespace)} if serves else set()
    keystore = moment.found.get(name, {}).get(KEYSTORE, b"")
    if not _holds(keystore, hosts, of_cluster.signer, moment.now):
        keystore = of_cluster.signer.issue(name, sorted(hosts), ORGANIZATION).both.encode()
    settings = properties_text(CLIENT_PROPERTIES).encode()
    return {KEYSTORE: keystore, AUTHORITIES: of_cluster.trusted.encode(), SETTINGS: settings}


def _of_administrator(
    cluster: Cluster,
    external: ExternalAccess,
    of_cluster: AuthorityPlan,
    of_clients: AuthorityPlan,
    moment: Moment,
) -> Data:
    before = moment.found.get(administrator_name(cluster.metadata.name), {})
    data: dict[str, bytes] = {"ca.crt": of_cluster.trusted.encode()}
    if needs_password(cluster):
        password = before.get("password", b"").decode() or moment.new_password()
        mechanism = next(filter(None, map(mechanism_of, _preferred(cluster))))
        login = login_of(mechanism, ADMINISTRATOR, password)
        data |= {"password": password.encode(), "sasl.jaas.config": login.encode()}
    if _asks_for_certificates(cluster):
        pem = _user_pem(before, ("user.crt", "user.key"), ADMINISTRATOR, of_clients.signer, moment)
        data |= {"user.crt": pem.certificate.encode(), "user.key": pem.key.encode()}
    listener = next(_preferred(cluster))
    settings = client_settings(listener, bootstrap_servers(cluster, listener, external), data)
    return {**data, "client.properties": settings.encode()}


def _asks_for_certificates(cluster: Cluster) -> bool:
    return any(each.authentication is not None and each.authentication.type == "tls" for each in cluster.spec.listeners)


def _preferred(cluster: Cluster) -> Iterator[Listener]:
    """Yield the listeners with authentication, internal listeners first."""
    found = (each for each in cluster.spec.listeners if each.authentication is not None)
    yield from sorted(found, key=lambda each: each.type != "internal")


def _user_pem(
    before: Data, keys: tuple[str, str], name: str, signer: Authority, moment: Moment, organization: str = ""
) -> Pem:
    certificate, key = (before.get(each, b"") for each in keys)
    if key and _holds(certificate, frozenset(), signer, moment.now):
        return Pem(key.decode(), certificate.decode())
    return signer.issue(name, (), organization)


def _holds(pem: bytes, hosts: Set[str], signer: Authority, now: dt.datetime) -> bool:
    """Return whether the certificate is issued by `signer`, names all `hosts`, and need not be renewed yet."""
    try:
        (certificate,) = certificates_in(pem.decode())
    except ValueError:
        return False
    return hosts <= hosts_of(certificate) and is_current(certificate, signer.certificate, now)
