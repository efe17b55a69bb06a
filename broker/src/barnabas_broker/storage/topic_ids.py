"""Which topic a log is of (`partition.metadata`): a later one of the same name must not take it for its own."""

from uuid import UUID

from barnabas_broker.storage import file_names
from barnabas_broker.storage.checkpoints import encode_partition_metadata
from barnabas_broker.storage.errors import storage_error
from barnabas_broker.storage.log import Log


def give_topic_id(log: Log, topic_id: UUID) -> None:
    """To a new log, and to one that has lost it with the power: it is synced at the first flush. StorageError."""
    if log.topic_id == topic_id:
        return
    path = f"{log.directory}/{file_names.PARTITION_METADATA}"
    try:
        log.files.write_atomically(path, encode_partition_metadata(topic_id), sync=False)
    except OSError as error:
        raise storage_error(log.log_dir, log.directory, error) from error
    log.topic_id = topic_id
