"""Compute the lag of groups, and ask the brokers for unknown write times of records."""

from typing import Final

from barnabas_kafka.asking import Asking
from barnabas_lag.evaluation.history import History
from barnabas_lag.evaluation.lags import Evaluation
from barnabas_lag.evaluation.readings import Readings
from barnabas_lag.kafka.offsets import answers

QUESTIONS_A_ROUND: Final = 8
"""The maximum rounds of ListOffsets requests in one evaluation; the next evaluation asks what is still unknown."""


def evaluate(asking: Asking, readings: Readings, history: History, now_s: float) -> Evaluation:
    """Add `readings` to the history, and return the lags of all groups.

    To learn the age of the lag, ask the leaders when the first unread records of the groups were written. `now_s` is in
    seconds since the epoch. Raises ClusterUnreachable if no request can be sent.
    """
    history.look(readings, now_s)
    for _ in range(QUESTIONS_A_ROUND):
        questions = history.questions(now_s)
        found = answers(asking, readings.partitions, questions)
        for partition, answer in found.items():
            history.answered(partition, questions[partition], answer)
        if not found:
            break
    return history.evaluate(now_s)
