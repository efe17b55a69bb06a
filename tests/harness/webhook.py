"""The operator's webhook, asked as an API server asks."""

from typing import Any

from barnabas_operator.admission import DryRunCall, Preview, StateOf, answer
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.resources.kind import Json


async def no_objection(*_: object) -> None:
    """Find nothing wrong with the objects of a Cluster: a `DryRunCall`."""


async def no_preview(*_: object) -> tuple[str, ...]:
    """Return no warnings, and ask no brokers: a `Preview`."""
    return ()


async def webhook_said(
    old: Json | None,
    new: Json | None,
    inventory: Inventory | None = None,
    *,
    state_of: StateOf = lambda _: None,
    dry_run: DryRunCall = no_objection,
    preview: Preview = no_preview,
    **request: object,
) -> dict[str, Any]:
    """Return the response to a change of a resource; `request` are further fields of the request."""
    asked = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "r", "oldObject": old, "object": new, **request}}
    response: dict[str, Any] = (await answer(asked, inventory or Inventory(), state_of, dry_run, preview))["response"]
    return response
