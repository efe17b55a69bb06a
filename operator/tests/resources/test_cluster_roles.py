"""The role of a kind gives rights to no other kind."""

import pytest

from barnabas_operator.resources.cluster_kind import KINDS, cluster_roles, edit_role


@pytest.mark.parametrize("name", KINDS)
def test_the_role_of_a_kind_gives_rights_to_that_kind_only(name: str) -> None:
    kind = KINDS[name]
    (role,) = (each for each in cluster_roles() if each["metadata"]["name"] == edit_role(kind))
    assert {group for rule in role["rules"] for group in rule["apiGroups"]} == {"barnabas.dev"}
    named = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert {resource.partition("/")[0] for resource in named} == {kind.plural}
