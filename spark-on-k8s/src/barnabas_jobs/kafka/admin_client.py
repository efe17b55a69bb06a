"""The admin client of kafka-python, for requests that librdkafka lacks, or whose responses it returns only in part."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from barnabas_jobs.credentials import for_kafka_python
from barnabas_jobs.planning.errors import JobFailed

TIMEOUT_MS: Final = 30_000


@contextmanager
def admin_client(bootstrap: str, complaint: str, timeout_ms: int = TIMEOUT_MS) -> Iterator[Any]:
    """Yield an admin client. Raises JobFailed with the text `complaint` if brokers do not answer or return an error."""
    try:
        admin: Any = KafkaAdminClient(
            bootstrap_servers=bootstrap.split(","),
            client_id="barnabas-jobs",
            bootstrap_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            **for_kafka_python(),
        )
        try:
            yield admin
        finally:
            admin.close()
    except KafkaError as error:
        raise JobFailed(f"bootstrap={bootstrap}: {complaint}: {error}") from error
