"""The pages of actions: the form, the effect before it happens, and the effect that has happened."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import htpy as h

from barnabas_console.html.frame import Frame, form, link, whole


class Field(NamedTuple):
    """A field of a form with its present value."""

    name: str
    title: str
    value: str
    hint: str = ""
    choices: Sequence[str] = ()
    title_of: Sequence[str] = ()
    """The titles of the choices, if they are not the choices themselves."""
    is_long: bool = False


def form_page(frame: Frame, title: str, path: str, fields: Sequence[Field]) -> h.Element:
    """Return the form of an action; its button leads to the effect, and changes nothing."""
    return whole(frame, title, form(frame, path, "Show the effect", [_field(each) for each in fields]))


def _field(field: Field) -> h.Element:
    if field.choices:
        titles = field.title_of or field.choices
        options = [
            h.option(value=each, selected=each == field.value)[title]
            for each, title in zip(field.choices, titles, strict=True)
        ]
        return h.label[field.title, h.select(name=field.name)[options]]
    if field.is_long:
        return h.label[field.title, h.textarea(name=field.name, rows="8", placeholder=field.hint)[field.value]]
    return h.label[field.title, h.input(name=field.name, value=field.value, placeholder=field.hint)]


def confirm(
    frame: Frame, title: str, path: str, effect: Sequence[str], fields: Mapping[str, str], button: str
) -> h.Element:
    """Return the page that names cluster, object and effect of an action before it happens."""
    return whole(
        frame,
        title,
        h.p["On the cluster ", h.strong[frame.cluster], ", as ", h.strong[frame.who], ":"],
        h.ul(".effect")[[h.li[each] for each in effect]],
        form(frame, path, button, hidden={**fields, "confirmed": "1"}),
        h.p[h.a(href=link(frame, path))["Back without a change"]],
    )


def done(frame: Frame, title: str, back: str, effect: Sequence[str]) -> h.Element:
    """Return the page of a change that has been made."""
    return whole(
        frame,
        title,
        h.p(".notice", role="status")["Done."],
        h.ul(".effect")[[h.li[each] for each in effect]],
        h.p[h.a(href=link(frame, back))["Back"]],
    )
