"""Applies a Cluster's objects, those that are not as they were applied last."""

from collections.abc import Mapping
from typing import Any

from barnabas_operator.kube.api import KubeApi, KubeRefused
from barnabas_operator.planning.ownership import conflict, is_owned
from barnabas_operator.planning.refused_pods import in_words_of_the_cluster
from barnabas_operator.planning.topic_checks import INVALID_SPEC, KUBERNETES_ERROR, Refusal
from barnabas_operator.resources.cluster import Cluster

Json = Mapping[str, Any]


class ObjectRefused(Exception):
    """The API server takes no such object: the resource asks for something that cannot be."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class AppliedObjects:
    """What cannot be is asked again when it is another, or after `forget`: each round would hear the same.

    What was refused for another reason may be taken the next time: an API server that starts knows nobody's rights yet.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._said: dict[tuple[str, str], tuple[Json, Refusal | None]] = {}
        """By kind and name: the object as it was sent last, and why it was refused, if it was."""

    def forget(self) -> None:
        """Apply all again."""
        self._said.clear()

    def forget_one(self, kind: str, name: str) -> None:
        """Apply it again, for it was changed otherwise; what was refused would be again."""
        if self._said.get((kind, name), (None, None))[1] is None:
            self._said.pop((kind, name), None)

    async def apply(self, cluster: Cluster, item: Json) -> bool:
        """Whether it was another one than before. Raises ObjectRefused, KubeUnreachable.

        An object of that name which is not the Cluster's stays as it is, and is refused.
        """
        if self._is_known(item):
            return False
        try:
            found = await self._api.get(item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
            if found is not None and not is_owned(cluster, found):
                raise ObjectRefused(conflict(cluster, item, found))
            await self._api.apply(item)
        except KubeRefused as error:
            raise self._refused(item, error) from error
        self._said[_key(item)] = item, None
        return True

    async def ask(self, item: Json) -> None:
        """Whether there can be such a one; whether what is there may become it, only `apply` says.

        Raises ObjectRefused, KubeUnreachable.
        """
        if self._is_known(item):
            return
        try:
            await self._api.rehearse(item)
        except KubeRefused as error:
            if error.is_about_the_object:  # Others would be about one more, not about this one.
                raise self._refused(item, error) from error

    def _is_known(self, item: Json) -> bool:
        before, refusal = self._said.get(_key(item), (None, None))
        if before == item and refusal is not None:
            raise ObjectRefused(refusal)
        return before == item

    def _refused(self, item: Json, error: KubeRefused) -> ObjectRefused:
        refusal = _refusal(item, error)
        if error.is_about_the_object:
            self._said[_key(item)] = item, refusal
        return ObjectRefused(refusal)


def _key(item: Json) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def _refusal(item: Json, error: KubeRefused) -> Refusal:
    reason = INVALID_SPEC if error.is_about_the_object else KUBERNETES_ERROR
    said = in_words_of_the_cluster(error.message)
    return Refusal(reason, f"{item['kind']} {item['metadata']['name']}: {said}")
