"""A job's progress on a terminal, in a log and in the annotation; and the driver's report of its end."""

import io

import msgspec
import pytest
from jobs_world import World
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.console import Console

from barnabas_jobs.app.run import BarsPage, LinesPage, watched
from barnabas_jobs.planning.options import BYTES_MAX, Ending
from barnabas_jobs.planning.progress import Amount, Pace, Progress, Seen
from barnabas_jobs.spark.status import Phase, SparkStatus, of_tag, phase
from harness.deadline import wait_for


def seen(done: int, name: str = "archiving", total: int | None = 1000) -> Seen:
    return Seen(phase=name, stages=Amount(1, 4), records=Amount(done, total))


def test_progress_has_the_rate_and_the_seconds_left_of_its_phase() -> None:
    pace = Pace()
    assert pace.progress(seen(100), 50.0).records_per_second == 0
    later = pace.progress(seen(400), 60.0)
    assert (later.records_per_second, later.seconds_left) == (30, 20)
    assert str(later) == "archiving: 400 of 1,000 records, 40%, 30 a second, 20 s left, stages 1 of 4"
    other = pace.progress(seen(400, "counting", None), 70.0)
    assert (other.records_per_second, other.seconds_left) == (0, None)
    assert str(other) == "counting: 400 records, stages 1 of 4"


def test_the_annotation_has_the_names_that_the_operator_reads() -> None:
    written = msgspec.json.encode(Pace().progress(seen(0, total=None), 0.0))
    assert msgspec.json.decode(written) == {
        "phase": "archiving",
        "stages": {"done": 1, "total": 4},
        "records": {"done": 0, "total": None},
        "recordsPerSecond": 0,
    }


@pytest.mark.parametrize("told", [Phase("archiving", 12), Phase("a = b", None)])
def test_a_phase_is_parsed_from_its_tag(told: Phase) -> None:
    assert of_tag(told.tag) == told
    assert of_tag("somebody else's") is None


def test_a_shortened_ending_keeps_findings_up_to_half_of_its_size() -> None:
    findings = [f"flights-{number}: the oldest record is 2.4 hours old" for number in range(100)]
    partitions = [{"partition": number, "equal": True} for number in range(500)]
    ending = Ending(exit=3, message="differs", result={"partitions": partitions, "findings": findings})
    told = msgspec.json.decode(ending.shortened())["result"]
    assert told["findings"][:-1] == findings[: len(told["findings"]) - 1]
    assert len(told["findings"]) > 30
    assert told["findings"][-1] == f"{101 - len(told['findings'])} more findings; see the report, or the log of the pod"
    assert told["partitions"] == "500 items; see the log of the pod"


def test_an_ending_that_is_too_long_loses_its_largest_lists_first() -> None:
    partitions = [{"partition": number, "equal": True} for number in range(500)]
    ending = Ending(exit=3, message="differs", result={"topic": "flights", "few": [1, 2], "partitions": partitions})
    written = ending.shortened()
    assert len(written) <= BYTES_MAX
    told = msgspec.json.decode(written)
    assert told["result"] == {"topic": "flights", "few": [1, 2], "partitions": "500 items; see the log of the pod"}


@pytest.mark.parametrize("character", ["x", "\N{SNOWMAN}", '"', "\0"])
def test_an_ending_with_a_long_message_is_shortened_to_the_limit(character: str) -> None:
    ending = Ending(exit=1, message=character * 20_000, result={"text": "y" * 5000})
    written = ending.shortened()
    assert BYTES_MAX // 2 < len(written) <= BYTES_MAX
    told = msgspec.json.decode(written)
    assert told["exit"] == 1
    assert told["message"].startswith(character * 100)
    assert "result" not in told


def test_an_ending_without_its_overlong_ledger_fits() -> None:
    ending = Ending(exit=1, message="differs", ledger="s3a://" + "x" * 5000)
    assert msgspec.json.decode(ending.shortened()) == {"exit": 1, "message": "\N{HORIZONTAL ELLIPSIS}"}


def test_the_log_gets_a_progress_line_every_ten_seconds() -> None:
    now_s, log = [0.0], io.StringIO()
    page = LinesPage(log, lambda: now_s[0])
    for second in range(25):
        now_s[0] = float(second)
        page.update(Pace().progress(seen(second), now_s[0]))
    assert [line.split()[1] for line in log.getvalue().splitlines()] == ["10", "20"]


def test_a_terminal_gets_a_bar_for_each_phase_with_amount_rate_and_time_left() -> None:
    log = io.StringIO()
    page = BarsPage(Console(file=log, force_terminal=True, color_system=None, width=120))
    pace = Pace()
    for now_s, look in enumerate([seen(0), seen(400), seen(1000), seen(0, "counting", None)]):
        page.update(pace.progress(look, now_s * 10.0))
    page.update(pace.progress(seen(7, "counting", None), 40.0), last=True)
    stages, archiving, counting = log.getvalue()[log.getvalue().rindex("stages") :].splitlines()[:3]
    assert stages.split()[-4:] == ["25%", "1", "of", "4"]
    assert archiving.endswith(" 100% 1,000 of 1,000 50/s, 0:00 left")
    assert (counting.split()[0], counting.split()[-2:]) == ("counting", ["7", "1/s"])


class Heard:
    """A listener that records all calls."""

    def __init__(self) -> None:
        self.told: list[Progress] = []
        self.last = 0

    def update(self, progress: Progress, last: bool = False) -> None:
        self.told.append(progress)
        self.last += last


def test_listeners_get_the_last_progress_again_if_spark_no_longer_answers(capsys: pytest.CaptureFixture[str]) -> None:
    heard, looks = Heard(), iter([seen(100)])

    def look() -> Seen:
        for each in looks:
            return each
        raise Py4JError("the connection is gone")

    with watched(look, [heard], pause_s=0.001):
        wait_for(lambda: heard.last)
    assert [each.records.done for each in heard.told] == [100, 100]
    assert "Spark no longer reports the progress of the job: the connection is gone" in capsys.readouterr().err


def test_the_progress_of_an_archive_run_comes_from_sparks_own_figures(spark: SparkSession, world: World) -> None:
    world.make()
    world.write(67)  # The number is unique: Spark adds up phases with the same name and total.
    heard, before = Heard(), SparkStatus(spark).seen().stages  # Other tests had stages that failed.
    with watched(SparkStatus(spark).seen, [heard], pause_s=0.05):
        assert world.archive(spark, commit_records=34).records == 67
    assert heard.last == 1
    # The first look may come before the job begins, and then shows another test's archive.
    archiving = [each for each in heard.told if (each.phase, each.records.total) == ("archiving", 67)]
    assert archiving[-1].records == Amount(67, 67)
    assert [each.records.done for each in archiving] == sorted(each.records.done for each in archiving)
    stages = heard.told[-1].stages
    assert stages.total is not None
    assert before.total is not None
    assert stages.total - stages.done == before.total - before.done
    assert stages.done > before.done


def test_the_job_description_of_the_session_is_restored_after_a_phase(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobDescription("mine")
    with phase(spark, "ours", 1):
        assert context.getLocalProperty("spark.job.description") == "ours"
        assert list(context.getJobTags()) == [Phase("ours", 1).tag]
    assert context.getLocalProperty("spark.job.description") == "mine"
    assert list(context.getJobTags()) == []
    context.setJobDescription(None)  # type: ignore[arg-type]
