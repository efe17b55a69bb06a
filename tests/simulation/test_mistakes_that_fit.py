"""Every known mistake can still be planted: a change of the code that it replaces is noticed here within seconds."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from simulation.mutants import MUTANTS, SET_UPS

APPLY: dict[str, Callable[[], AbstractContextManager[None]]] = {
    **{name: mutant.apply for name, mutant in MUTANTS.items()},
    **{f"the set-up of {name}": apply for name, apply in SET_UPS.items()},
}


def does_not_fit(original: Any, new: Any) -> str:
    """Return why a call of the original would not reach the new function, or "" if it would or this is unknown."""
    if not inspect.isfunction(original) or not inspect.isfunction(new):
        return ""
    parameters = inspect.signature(original).parameters.values()
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    named = {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY}
    try:
        inspect.signature(new).bind(*positional, **named)
    except TypeError as error:
        return f"{original.__qualname__}: {error}"
    return ""


@pytest.mark.parametrize("name", APPLY)
def test_a_mistake_accepts_the_arguments_of_the_code_that_it_replaces(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter, wrong = mock._patch.__enter__, list[str]()

    def looking(patch: Any) -> Any:
        patch.target = patch.getter()
        original, _ = patch.get_original()
        wrong.append(does_not_fit(original, patch.new))
        return enter(patch)

    monkeypatch.setattr(mock._patch, "__enter__", looking)
    with APPLY[name]():
        pass
    assert "".join(wrong) == ""
