"""Log and count denied requests, under the logger name `kafka.authorizer.logger`, as in Kafka."""

import logging
from collections import Counter
from typing import Final, NamedTuple

from barnabas_broker.security.acls.acl_index import AclSubject
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.clock import Clock, monotonic_ms

log = logging.getLogger("kafka.authorizer.logger")

LINES_MAX: Final = 100
"""The maximum number of refusals logged in PERIOD_MS, so that a request for a million topics does not fill the disk."""
PERIOD_MS: Final = 1_000
NAME_CHARS_MAX: Final = 250


class Refusal(NamedTuple):
    """The labels by which refusals are counted."""

    operation: str
    resource_type: str


class Audit:
    """The log and the counts of decisions.

    Refusals are logged at INFO. Allowed operations are logged at DEBUG, unless the decision was cached.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._period_began_ms = monotonic_ms(clock)
        self._lines = 0
        self.refusals: Counter[Refusal] = Counter()

    def refused(self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Count a refusal, and log it unless LINES_MAX refusals were already logged in the current period."""
        self.refusals[Refusal(operation.name, resource_type.name)] += 1
        now_ms = monotonic_ms(self._clock)
        if not 0 <= now_ms - self._period_began_ms < PERIOD_MS:
            if self._lines > LINES_MAX:
                log.info("%d more refusals were not logged", self._lines - LINES_MAX)
            self._period_began_ms, self._lines = now_ms, 0
        self._lines += 1
        if self._lines <= LINES_MAX:
            log.info("%s", _line(asker, "Denied", operation, resource_type, name))

    def allowed(self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Log an allowed operation, for administrators who want to know which rights an application needs."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", _line(asker, "Allowed", operation, resource_type, name))


def _line(asker: AclSubject, decision: str, operation: AclOperation, resource_type: ResourceType, name: str) -> str:
    """Format a log line; names become Python literals, because a name with a line break could forge a line."""
    shown = name[:NAME_CHARS_MAX]
    return (
        f"Principal = {asker.principal!r} is {decision} operation = {operation.name} from host = {asker.host} "
        f"on resource = {resource_type.name}:{shown!r}"
    )
