"""The pages of users: what each may do, and by which rule."""

from collections.abc import Sequence
from typing import Final

import htpy as h

from barnabas_console.html.frame import (
    ROWS_MAX,
    Column,
    Frame,
    cut,
    facts,
    figure,
    linked,
    list_page,
    path_of,
    table,
    whole,
)
from barnabas_console.model.details import UserRow
from barnabas_console.model.inputs import ListQuery, Part
from barnabas_console.model.rights import ALLOWED, NO_RULE, AclRow, RightsRow

RIGHTS_SORTS: Final = ("resource_type", "name")
WITHOUT: Final = "The brokers have no authorizer, so every user may do everything."
ABOUT_RIGHTS: Final = (
    "A rule that denies comes before all that allow. Two settings decide, too, and brokers do not tell them: a super "
    "user (super.users) may do everything, and where no rule names a resource, allow.everyone.if.no.acl.found allows "
    "everything or, by default, nothing. Rules for single hosts count if the host is named here. A prefix and * stand "
    "for all names without a row of their own."
)
PREFIX, ALL = " (prefix)", " (all)"


def users(frame: Frame, query: ListQuery, part: Part, *, has_acls: bool) -> h.Element:
    """Return the list of users that have a SCRAM password, a rule or a quota."""
    columns = (
        linked(frame, "users", "User", "name", sorts=True),
        Column("Passwords", lambda each: ", ".join(each.mechanisms) or "none"),
        Column("Rules", lambda each: figure(each.rules), "rules", is_number=True),
        Column("Quotas", lambda each: each.quotas or "none"),
    )
    without = None if has_acls else h.p(".notice")[WITHOUT]
    return whole(frame, "Users", without, list_page(frame, "/users", query, part, columns))


def user(
    frame: Frame, row: UserRow, rules: Sequence[AclRow] | None, query: ListQuery, part: Part, host: str
) -> h.Element:
    """Return the page of a user: what it may do with each resource, and by which rule."""
    about = facts((("Passwords", ", ".join(row.mechanisms) or "none"), ("Quotas", row.quotas or "none")))
    if rules is None:
        return whole(frame, row.name, about, h.p(".notice")[WITHOUT])
    columns = (
        Column("Resource", lambda each: each.resource_type, "resource_type"),
        Column("Name", lambda each: _named(each.resource, each.pattern), "name"),
        Column("Decision", _decision),
        Column("Operations", lambda each: ", ".join(each.operations)),
        Column("By which rule", _reason),
    )
    return whole(
        frame,
        row.name,
        about,
        h.h2["Rights"],
        h.p[ABOUT_RIGHTS],
        list_page(frame, path_of("users", row.name), query, part, columns, host=host),
        h.h2["Rules"],
        _rules(rules),
    )


def _decision(row: RightsRow) -> h.Node:
    return row.decision if row.decision == ALLOWED else h.em(".unknown")[row.decision]


def _reason(row: RightsRow) -> str:
    if row.rule is None:
        return "allow.everyone.if.no.acl.found decides" if row.decision == NO_RULE else "no rule allows it"
    rule, host = row.rule, "" if row.rule.host == "*" else f" from {row.rule.host}"
    is_same = (rule.resource, rule.pattern) == (row.resource, row.pattern)
    where = "this name" if is_same else _named(rule.resource, rule.pattern)
    return f"{rule.permission} {rule.operation} on {where} for {rule.principal}{host}"


def _named(name: str, pattern: str) -> str:
    return f"{name}{PREFIX if pattern == 'prefixed' else ALL if name == '*' else ''}"


def _rules(rules: Sequence[AclRow]) -> h.Node:
    columns = (
        Column("May", lambda each: each.permission),
        Column("Operation", lambda each: each.operation),
        Column("Resource", lambda each: each.resource_type),
        Column("Name", lambda each: each.resource),
        Column("Pattern", lambda each: each.pattern),
        Column("From host", lambda each: each.host),
        Column("Rule of", lambda each: each.principal),
    )
    return [cut(rules), table(columns, rules[:ROWS_MAX])] if rules else h.p["No rule names this user."]
