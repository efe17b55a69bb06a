"""The number of ACL patterns is limited; existing ones can still be changed and removed at the limit."""

from pathlib import Path

import msgspec
import pytest
from metadata_cluster import cluster_at

from barnabas_broker.metadata.controller import metadata_writer
from barnabas_broker.security.authorizer import changing, key_of
from barnabas_core.acls import AclEntry, AclOperation, AclPattern, PatternType, Permission, ResourceType
from barnabas_core.errors import ErrorCode

READ = AclEntry("User:alice", "*", AclOperation.READ, Permission.ALLOW)
WRITE = AclEntry("User:alice", "*", AclOperation.WRITE, Permission.ALLOW)
A, B, C, D = (AclPattern(ResourceType.TOPIC, name, PatternType.LITERAL) for name in "abcd")


async def test_a_pattern_beyond_the_limit_is_refused_until_another_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_writer, "ACL_PATTERNS_MAX", 2)
    async with cluster_at(tmp_path / "metadata.sqlite") as cluster:
        (node,) = await cluster.start(1)
        add = {key_of(pattern): changing(pattern, added=[READ]) for pattern in (A, B, C)}
        refused = {key: error for key, error in (await node.writer.change_acls(add)).items() if error}
        assert {key: error.code for key, error in refused.items()} == {key_of(C): ErrorCode.INVALID_REQUEST}
        assert not any((await node.writer.change_acls({key_of(A): changing(A, added=[WRITE])})).values())
        emptied = {key_of(B): lambda _: msgspec.structs.replace(changing(B, added=[])(None), acls=())}
        assert not any((await node.writer.change_acls(emptied)).values())
        assert not any((await node.writer.change_acls({key_of(D): changing(D, added=[READ])})).values())
        assert set(node.image.acls) == {key_of(A), key_of(D)}
