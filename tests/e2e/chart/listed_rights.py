"""The rights of accounts as the API server lists them, as the last part of docs/reference/rights.md."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from local_kubernetes.kubectl import Kubectl

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "rights.md"
HEADING: Final = "## Each right\n"
INTRODUCTION: Final = (
    "\nThese tables list what `kubectl -n NAMESPACE auth can-i --list --as=system:serviceaccount:NAMESPACE:ACCOUNT`"
    " prints for each account of the chart, without the rights that every account has."
    "\n`tests/e2e/chart/test_rights.py` compares them with an API server.\n"
)


class Right(NamedTuple):
    """The verbs that one account may use on a resource, or on these names of it."""

    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...]


def rights_of(kubectl: Kubectl, namespace: str, account: str) -> set[Right]:
    """Return the rights of an account (`NAMESPACE:NAME`) in a namespace, without those of every account."""
    nobody = f"{account.partition(':')[0]}:nobody"
    return set(_listed(kubectl, namespace, account)) - set(_listed(kubectl, namespace, nobody))


def _listed(kubectl: Kubectl, namespace: str, account: str) -> Iterator[Right]:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    asked = ("create", "-f-", "-ojson", "--validate=false", f"--as=system:serviceaccount:{account}")
    rules: list[Mapping[str, Any]] = json.loads(kubectl(*asked, stdin=json.dumps(review)))["status"]["resourceRules"]
    for rule in rules:
        for group in rule["apiGroups"]:
            for plural in rule["resources"]:
                kind, _, part = plural.partition("/")
                name = ".".join(filter(None, (kind, group))) + (f"/{part}" if part else "")
                yield Right(name, tuple(sorted(rule["verbs"])), tuple(sorted(rule.get("resourceNames", ()))))


def section(accounts: Mapping[str, set[Right]]) -> str:
    """Return the part of the page below its heading."""
    tables = (f"\n### {title}\n\n{_table(rights)}" for title, rights in accounts.items())
    return INTRODUCTION + "".join(tables)


def _table(rights: set[Right]) -> str:
    resources = defaultdict[tuple[tuple[str, ...], tuple[str, ...]], set[str]](set)
    for right in rights:
        resources[right.verbs, right.names].add(right.resource)
    rows = sorted(
        (", ".join(sorted(of)), ", ".join(verbs), ", ".join(names) or "all") for (verbs, names), of in resources.items()
    )
    lines = ["| resources | names | verbs |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {of} | {names} | {verbs} |" for of, verbs, names in rows)]) + "\n"
