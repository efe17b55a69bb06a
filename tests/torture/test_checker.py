"""The checker of the torture finds every mistake that is planted in a good history."""

from collections.abc import Callable

import pytest

from barnabas_broker.wire.record_batch import BatchHeader
from torture.history import SHOWN_MAX, Acknowledged, Commit, History, Lane, broken_sequences, check

SURE, PLAIN = Lane("sure", 0), Lane("plain", 0)


def good_history() -> History:
    """Make a history: two writers, a retry that is there twice, a group that read all and committed twice."""
    history = History(idempotent_topics=frozenset(["sure"]), sent={"a": 5, "b": 4})
    history.logs = {SURE: [b"a/%d" % n for n in range(5)], PLAIN: [b"b/0", b"b/1", b"b/0", b"b/1", b"b/2", b"b/3"]}
    for lane, log in history.logs.items():
        for offset, value in enumerate(log):
            history.saw(lane, offset, value)
    history.acknowledged = [Acknowledged(SURE, b"a/%d" % n, n) for n in range(5)]
    history.acknowledged += [Acknowledged(PLAIN, b"b/0", 2), Acknowledged(PLAIN, b"b/2", -1)]
    history.commits = [Commit(SURE, 2, 1.0, 2.0), Commit(SURE, 5, 3.0, 4.0)]
    history.committed = {SURE: 5, PLAIN: 6}
    return history


def lose_the_last(history: History) -> None:
    history.logs[SURE].pop()


def lose_one_in_the_middle(history: History) -> None:
    del history.logs[SURE][2]


def repeat(history: History) -> None:
    history.logs[SURE].append(b"a/4")


def swap(history: History) -> None:
    log = history.logs[SURE]
    log[1], log[2] = log[2], log[1]


def invent(history: History) -> None:
    history.logs[SURE].append(b"a/5")


def invent_noise(history: History) -> None:
    history.logs[PLAIN].append(b"\x00\xff")


def hide_from_the_group(history: History) -> None:
    del history.seen[SURE][3]


def show_another_value(history: History) -> None:
    history.saw(SURE, 3, b"a/7")


def show_what_is_not_kept(history: History) -> None:
    history.saw(PLAIN, 6, b"b/3")


def commit_backwards(history: History) -> None:
    history.commits.append(Commit(SURE, 4, 5.0, 6.0))


def forget_the_commit(history: History) -> None:
    history.committed[SURE] = 2


def fail_a_write(history: History) -> None:
    history.problems.append("write failed: a: timed out")


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        (lose_the_last, "lost: b'a/4'"),
        (lose_one_in_the_middle, "lost: b'a/2'"),
        (lose_one_in_the_middle, "moved: b'a/3'"),
        (repeat, "duplicate: b'a/4'"),
        (swap, "reorder: b'a/1'"),
        (invent, "never sent: b'a/5'"),
        (invent_noise, "never sent:"),
        (hide_from_the_group, "unseen:"),
        (show_another_value, "two values: sure-0 offset 3"),
        (show_what_is_not_kept, "seen and gone: b'b/3'"),
        (commit_backwards, "commit backwards: 4 of sure-0 after 5"),
        (forget_the_commit, "commit lost: 5 of sure-0"),
        (fail_a_write, "write failed:"),
    ],
)
def test_each_planted_mistake_is_found(mistake: Callable[[History], None], found: str) -> None:
    history = good_history()
    mistake(history)
    assert any(problem.startswith(found) for problem in check(history)), check(history)


def test_a_good_history_has_no_problems() -> None:
    assert check(good_history()) == []


def test_concurrent_commits_may_come_in_any_order() -> None:
    history = good_history()
    history.commits.append(Commit(SURE, 3, 3.5, 5.0))
    assert check(history) == []


def test_an_unseen_record_is_reported_with_the_members_around_it() -> None:
    history = good_history()
    history.seen[SURE].clear()
    history.givens[SURE].clear()
    history.commits = [Commit(SURE, 5, 3.0, 4.0, "first"), Commit(SURE, 4, 1.0, 2.0, "second")]
    for offset, member in ((0, "first"), (1, "first"), (4, "second")):
        history.saw(SURE, offset, b"a/%d" % offset, member)
    around = "first was given 1, second was given 4, second was the first to commit behind it, 4"
    assert f"unseen: the group was never given b'a/2' of sure-0 offset 2; {around}" in check(history)


def test_some_of_many_problems_of_one_kind_are_shown_and_all_are_counted() -> None:
    history = good_history()
    history.logs[SURE].clear()
    lost = [f"lost: {value!r}" for value in (b"a/0", b"a/1", b"a/2", b"a/3", b"a/4")]
    assert len(lost) == SHOWN_MAX

    def shown() -> list[str]:
        return [problem for problem in check(history) if problem.startswith("lost")]

    assert [problem[:12] for problem in shown()] == lost
    history.acknowledged += [Acknowledged(SURE, b"a/0", 0)] * 10
    *some, total = shown()
    assert (len(some), total) == (SHOWN_MAX, "lost: 15 in all")


def header(base_offset: int, epoch: int, sequence: int, count: int = 2, producer_id: int = 7) -> BatchHeader:
    return BatchHeader(base_offset, 100, 0, 2, 0, 0, count - 1, 0, 0, producer_id, epoch, sequence, count)


def test_sequences_begin_at_0_in_each_producer_epoch_and_have_no_gap() -> None:
    good = [header(0, 0, 0), header(2, 0, 2), header(4, 1, 0), header(6, 0, 4), header(8, -1, -1, producer_id=-1)]
    assert list(broken_sequences(good)) == []


@pytest.mark.parametrize("sequence", [0, 1, 3, 4])
def test_a_repeated_or_skipped_sequence_is_found(sequence: int) -> None:
    (problem,) = broken_sequences([header(0, 0, 0), header(2, 0, sequence)])
    assert problem == f"offset 2 of producer (7, 0) has sequence {sequence}, not 2"
