"""Which actions a run of first weeks has."""

from e2e.weeks.deck import ACTIONS, Plan


def test_the_same_seed_gives_the_same_order_and_another_one_another() -> None:
    first, again, other = (list(Plan(50, seed).names()) for seed in (7, 7, 8))
    assert first == again != other


def test_every_action_has_its_turn_before_one_comes_again() -> None:
    count = len(ACTIONS)
    names = list(Plan(2 * count, 1).names())
    assert set(names[:count]) == set(names[count:]) == set(ACTIONS)
    assert names[:count] != names[count:]


def test_a_short_run_leaves_out_what_takes_minutes() -> None:
    names = set(Plan(len(ACTIONS), 1, with_long=False).names())
    assert names == {name for name, action in ACTIONS.items() if not action.is_long} != set(ACTIONS)


def test_the_command_that_is_printed_names_all_that_was_chosen() -> None:
    plan = Plan(3, 7, ("a new Topic",), with_long=False)
    assert plan.again == """make weeks WEEKS='--seed 7 --actions 3 --short --only "a new Topic"'"""
    assert set(plan.names()) == {"a new Topic"}
