"""The order of actions in a run of first weeks."""

from e2e.weeks.deck import ACTIONS, Plan


def test_the_same_seed_gives_the_same_order_and_another_seed_another_order() -> None:
    first, again, other = (list(Plan(50, seed).names()) for seed in (7, 7, 8))
    assert first == again != other


def test_every_action_has_its_turn_before_one_is_repeated() -> None:
    count = len(ACTIONS)
    names = list(Plan(2 * count, 1).names())
    assert set(names[:count]) == set(names[count:]) == set(ACTIONS)
    assert names[:count] != names[count:]


def test_a_short_run_leaves_out_long_actions() -> None:
    names = set(Plan(len(ACTIONS), 1, with_long=False).names())
    assert names == {name for name, action in ACTIONS.items() if not action.is_long} != set(ACTIONS)


def test_the_printed_command_has_all_chosen_options() -> None:
    plan = Plan(3, 7, ("a new Topic",), with_long=False)
    assert plan.again == """make weeks WEEKS='--seed 7 --actions 3 --short --only "a new Topic"'"""
    assert set(plan.names()) == {"a new Topic"}
