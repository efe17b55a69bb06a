"""The pages of clusters, topics, groups and runs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import htpy as h

from barnabas_console.html.frame import (
    ROWS_MAX,
    Column,
    Frame,
    cut,
    facts,
    figure,
    form,
    link,
    linked,
    list_page,
    live,
    path_of,
    size,
    table,
    whole,
)
from barnabas_console.model.details import (
    HANGING,
    Detail,
    Manifest,
    Roll,
    RunRow,
    TransactionRow,
)
from barnabas_console.model.inputs import ListQuery, Part
from barnabas_console.model.snapshot import (
    Broker,
    Group,
    GroupLag,
    GroupSeen,
    Leaderless,
    Moving,
    Partition,
    Snapshot,
    Topic,
    Unknown,
)

TOPIC_SORTS: Final = ("name", "partitions", "offline", "under_replicated", "records", "size", "rate", "groups", "lag")
EXPIRES_SOON_DAYS: Final = 14
ABOUT_HANGING: Final = (
    "A transaction hangs if no coordinator knows it and its last write is 15 minutes old: nobody will end it, and "
    "consumers of committed records wait for it. `barnabas abort-transaction` and kafka-transactions.sh end it. "
    "Without the right to describe its transactional id, a transaction that a coordinator knows looks the same."
)
START: Final = "Start offset"
DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
ABOUT_SHARES: Final = (
    "A share group has finished some records behind its start offset: the lag is what its coordinator reports. "
    "How many records are in flight is in the metrics of the brokers."
)
GROUP_SORTS: Final = ("group_id", "group_type", "state", "members", "topics", "lag")
RUN_SORTS: Final = ("created", "name", "job", "cluster", "phase", "records")
LARGEST_FIRST: Final = frozenset({"offline", "under_replicated", "records", "size", "rate", "groups", "lag", "members"})
GROUP_ROWS_MAX: Final = 500
ASSIGNED_CHARACTERS_MAX: Final = 200_000
"""The rows of each table of a group, and the characters of all assignments, so that the page is below a megabyte."""


def login(frame: Frame, mechanisms: Sequence[str], first: str, back: str, problem: str = "") -> h.Element:
    """Return the page on which a visitor logs in with a Kafka user."""
    return whole(
        frame,
        "Log in",
        h.p["Log in with your own Kafka user. The brokers' ACLs say what you see."],
        problem and h.p(".problem", role="alert")[problem],
        h.form(".act", method="post", action=link(frame, "/login"))[
            h.input(type="hidden", name="back", value=back),
            h.label["User", h.input(name="username", autocomplete="username", autofocus=True, maxlength="200")],
            h.label[
                "Password or token",
                h.input(type="password", name="password", autocomplete="current-password", maxlength="8000"),
            ],
            h.label[
                "Mechanism",
                h.select(name="mechanism")[[h.option(value=each, selected=each == first)[each] for each in mechanisms]],
            ],
            h.button(type="submit")["Log in"],
        ],
    )


def clusters(frame: Frame, paths: Mapping[str, str]) -> h.Element:
    """Return the list of clusters, with the path of each by its name."""
    return whole(frame, "Clusters", h.ul[[h.li[h.a(href=f"{path}/")[name]] for name, path in paths.items()]])


def problem(frame: Frame, title: str, text: str) -> h.Element:
    """Return a page that says in a sentence why there is no other."""
    return whole(frame, title, h.p(".problem", role="alert")[text], h.p[h.a(href=link(frame, "/"))["To the cluster"]])


def token(frame: Frame, *, has_token: bool) -> h.Element:
    """Return the page on which a visitor gives a token for the Kubernetes API."""
    return whole(
        frame,
        "Kubernetes token",
        h.p[
            "MaintenanceJobs, rolls and manifests are read from the Kubernetes API with your token. "
            "It stays in the memory of the console until this session ends."
        ],
        has_token and h.p(".notice", role="status")["This session has a token. An empty one removes it."],
        form(
            frame,
            "/kubernetes",
            "Keep the token",
            h.label[
                "Token, as `kubectl create token NAME` prints it",
                h.input(type="password", name="token", autocomplete="off", maxlength="8000"),
            ],
        ),
    )


def cluster(frame: Frame, snapshot: Snapshot, roll: Roll | str | None) -> h.Element:
    """Return the page of brokers and their disks, with the partitions that need somebody's attention."""
    has_tls = any(each.certificate is not None for each in snapshot.seen.brokers)
    return whole(
        frame,
        "Cluster",
        live(
            frame,
            facts(
                (
                    ("Cluster id", snapshot.seen.cluster_id),
                    ("Brokers", _brokers(snapshot)),
                    ("Topics", figure(len(snapshot.topics))),
                    ("Partitions", figure(len(snapshot.seen.partitions))),
                    ("Groups", figure(len(snapshot.groups))),
                )
            ),
            table(
                (
                    Column("Broker", lambda each: [str(each.broker_id), each.is_controller and " (controller)"]),
                    Column("Address", lambda each: each.address),
                    Column("Rack", lambda each: each.rack or "none"),
                    Column("Leads", lambda each: figure(each.leads), is_number=True),
                    Column("Replicas", lambda each: figure(each.replicas), is_number=True),
                    Column("Logs", lambda each: size(each.size), is_number=True),
                    Column("Log dirs", _log_dirs),
                    *([Column("Certificate until", _certificate)] if has_tls else []),
                ),
                snapshot.seen.brokers,
            ),
            _roll(roll),
            _leaderless(frame, snapshot.leaderless),
            h.h2["Replicas that move"],
            _moving(frame, snapshot.moving),
            h.h2["Partitions that need attention"],
            _troubled(frame, [each for each in snapshot.topics if each.offline or each.under_replicated]),
        ),
    )


def _brokers(snapshot: Snapshot) -> h.Node:
    away = ", ".join(f"broker {each} with {count:,} replicas" for each, count in snapshot.away.items())
    return [figure(len(snapshot.seen.brokers)), away and h.em(".unknown")[f" away: {away}"]]


def _roll(roll: Roll | str | None) -> h.Node:
    if roll is None:
        return None
    if isinstance(roll, str):
        return [h.h2["Roll"], h.p(".unknown")[f"Not known: {roll}"]]
    waits = f"{roll.blocked_by}: {roll.message}" if roll.blocked_by else roll.message
    return [
        h.h2["Roll"],
        facts(
            (
                ("Restarting now", _numbers(roll.restarting)),
                ("Still to restart", _numbers(roll.remaining)),
                ("Waits for", waits or "nothing"),
            )
        ),
    ]


def _manifest(found: Manifest | str | None) -> h.Node:
    if found is None:
        return None
    if isinstance(found, str):
        return h.p(".unknown")[f"Whether a resource of Kubernetes declares it is not known: {found}"]
    return [
        h.h2[f"Declared by the {found.kind} {found.name}"],
        h.p["The operator keeps it so. Copy the manifest, change it, and apply it with kubectl."],
        h.pre(".manifest")[found.text],
    ]


def _troubled(frame: Frame, topics: Sequence[Topic]) -> h.Node:
    if not topics:
        return h.p["Every replica is in sync."]
    columns = (
        linked(frame, "topics", "Topic", "name"),
        Column("Offline", lambda each: figure(each.offline), is_number=True),
        Column("Under-replicated", lambda each: figure(each.under_replicated), is_number=True),
    )
    return table(columns, topics[:ROWS_MAX])


def _certificate(broker: Broker) -> h.Node:
    found = broker.certificate
    if found is None or found.problem:
        return h.em(".unknown")["not read" if found is None else found.problem]
    text = f"{found.expires} ({found.days:,} days)"
    return h.em(".unknown")[text] if found.days < EXPIRES_SOON_DAYS else text


def _leaderless(frame: Frame, rows: Sequence[Leaderless]) -> h.Node:
    if not rows:
        return None
    columns = (
        linked(frame, "topics", "Topic", "topic"),
        Column("Partition", lambda each: str(each.partition), is_number=True),
        Column("Why", lambda each: each.why),
    )
    return [h.h2["Partitions without a leader"], cut(rows), table(columns, rows[:ROWS_MAX])]


def _moving(frame: Frame, rows: Sequence[Moving] | Unknown) -> h.Node:
    if isinstance(rows, Unknown):
        return h.p[figure(rows)]
    if not rows:
        return h.p["No replica moves."]
    columns = (
        linked(frame, "topics", "Topic", "topic"),
        Column("Partition", lambda each: str(each.partition), is_number=True),
        Column("To broker", lambda each: str(each.broker_id), is_number=True),
        Column("In place of", lambda each: _numbers(each.removing) if each.removing else "no other broker"),
        Column("Left", lambda each: size(each.left), is_number=True),
    )
    return [cut(rows), table(columns, rows[:ROWS_MAX])]


def transactions(frame: Frame, rows: Sequence[TransactionRow], left_out: int) -> h.Element:
    """Return the list of open transactions, with those that hang first."""
    columns = (
        Column("State", lambda each: h.em(".unknown")[each.state] if each.state == HANGING else each.state),
        linked(frame, "topics", "Topic", "topic"),
        Column("Partition", lambda each: str(each.partition), is_number=True),
        Column("Transactional id", lambda each: each.transactional_id or h.em(".unknown")[each.why or "none is known"]),
        Column("Producer", lambda each: each.why or f"{each.producer_id}, epoch {each.producer_epoch}"),
        Column("Begins at", lambda each: figure(each.why or each.start_offset), is_number=True),
        Column("Last write", lambda each: each.why or f"{each.last_write} ({each.idle_s:,} s ago)"),
        Column("Held back", lambda each: figure(each.held_back), is_number=True),
    )
    return whole(
        frame,
        "Open transactions",
        h.p[ABOUT_HANGING],
        live(
            frame,
            left_out > 0 and h.p(".notice")[f"{left_out:,} more partitions with open transactions are left out."],
            table(columns, rows[:ROWS_MAX]) if rows else h.p["No partition that you may see has an open transaction."],
        ),
    )


def runs(frame: Frame, query: ListQuery, part: Part, cut_at: int | None) -> h.Element:
    """Return the list of MaintenanceJobs; `cut_at` is the number of rows if there are more."""
    columns = (
        linked(frame, "maintenance", "Run", "name", sorts=True),
        Column("Job", lambda each: each.job, "job"),
        Column("Cluster", lambda each: each.cluster, "cluster"),
        Column("Phase", _phase, "phase"),
        Column("Created", lambda each: each.created, "created"),
        Column("Duration", lambda each: each.duration),
        Column("Progress", lambda each: each.progress),
        Column("Records", lambda each: figure(each.records), "records", is_number=True),
    )
    more = cut_at is not None and h.p(".notice")[f"There are more than {cut_at:,}; kubectl shows all."]
    return whole(frame, "MaintenanceJobs", more, list_page(frame, "/maintenance", query, part, columns))


def _phase(row: RunRow) -> h.Node:
    return h.em(".unknown")[row.phase] if row.phase == "Failed" else row.phase


def run(frame: Frame, row: RunRow, options: Mapping[str, str], result: Mapping[str, object], ledger: str) -> h.Element:
    """Return the page of a MaintenanceJob: its state, its options, its result."""
    return whole(
        frame,
        row.name,
        facts(
            (
                ("Job", row.job),
                ("Cluster", row.cluster or "the only one of the namespace"),
                ("Phase", _phase(row)),
                ("Message", row.message or "none"),
                ("Created", row.created),
                ("Started", row.started or "not yet"),
                ("Ended", row.ended or "not yet"),
                ("Duration", row.duration or "none"),
                ("Attempts", figure(row.attempts)),
                ("Progress", row.progress or "none"),
                ("Records", figure(row.records)),
                ("Ledger", ledger or "none"),
            )
        ),
        h.h2["Options"],
        facts(sorted(options.items())) if options else h.p["None."],
        h.h2["Result"],
        h.pre[json.dumps(result, ensure_ascii=False, indent=1)] if result else h.p["None."],
    )


def _log_dirs(broker: Broker) -> h.Node:
    if isinstance(broker.log_dirs, Unknown):
        return figure(broker.log_dirs)
    return [
        h.div[each.path, " ", each.error or [size(each.usable), " of ", size(each.total), " free"]]
        for each in broker.log_dirs
    ]


def topics(frame: Frame, query: ListQuery, part: Part) -> h.Element:
    """Return the list of topics with their groups and lag."""
    columns = (
        linked(frame, "topics", "Topic", "name", sorts=True),
        Column("Partitions", lambda each: figure(each.partitions), "partitions", is_number=True),
        Column("Replicas", lambda each: figure(each.replicas), is_number=True),
        Column("Offline", lambda each: figure(each.offline), "offline", is_number=True),
        Column("Under-replicated", lambda each: figure(each.under_replicated), "under_replicated", is_number=True),
        Column("Records", lambda each: figure(each.records), "records", is_number=True),
        Column("Size", lambda each: size(each.size), "size", is_number=True),
        Column("Records/s", lambda each: figure(each.rate), "rate", is_number=True),
        Column("Groups", lambda each: figure(each.groups), "groups", is_number=True),
        Column("Lag", lambda each: figure(each.lag), "lag", is_number=True),
    )
    return whole(frame, "Topics", list_page(frame, "/topics", query, part, columns))


def groups(frame: Frame, query: ListQuery, part: Part) -> h.Element:
    """Return the list of groups of all kinds."""
    columns = (
        linked(frame, "groups", "Group", "group_id", sorts=True),
        Column("Type", lambda each: each.group_type, "group_type"),
        Column("State", lambda each: each.state, "state"),
        Column("Members", lambda each: figure(each.members), "members", is_number=True),
        Column("Topics", lambda each: figure(each.topics), "topics", is_number=True),
        Column("Lag", lambda each: figure(each.lag), "lag", is_number=True),
        Column("Coordinator", lambda each: str(each.coordinator), is_number=True),
    )
    return whole(frame, "Groups", list_page(frame, "/groups", query, part, columns))


def topic(
    frame: Frame,
    name: str,
    rows: Sequence[Partition],
    snapshot: Snapshot,
    detail: Detail,
    manifest: Manifest | str | None,
) -> h.Element:
    """Return the page of a topic: partitions, groups, configs, rights."""
    here = path_of("topics", name)
    columns = (
        Column(
            "Partition",
            lambda each: h.a(href=link(frame, f"{here}/messages", partition=each.partition))[str(each.partition)],
            is_number=True,
        ),
        Column("State", lambda each: each.state),
        Column("Leader", lambda each: figure(each.leader), is_number=True),
        Column("Replicas", lambda each: _numbers(each.replicas)),
        Column("In sync", lambda each: _numbers(each.isr)),
        Column("Start", lambda each: figure(each.start), is_number=True),
        Column("End", lambda each: figure(each.end), is_number=True),
        Column("Held back", lambda each: figure(each.held_back), is_number=True),
        Column("Size", lambda each: size(each.size), is_number=True),
    )
    return whole(
        frame,
        name,
        h.p[
            h.a(".button", href=link(frame, f"{here}/messages"))["Messages"],
            _topic_actions(frame, here, is_declared=manifest is not None),
        ],
        detail.rights is not None and h.p["You may: ", ", ".join(sorted(detail.rights)) or "nothing", "."],
        live(
            frame,
            cut(rows),
            table(columns, rows[:ROWS_MAX]),
            h.h2["Groups"],
            _readers(frame, snapshot.readers.get(name, {})),
            h.h2["Configs"],
            _configs(detail),
        ),
        _manifest(manifest),
    )


def _topic_actions(frame: Frame, here: str, *, is_declared: bool) -> h.Node:
    names = () if is_declared else (("partitions", "Add partitions"), ("config", "Set a config"))
    of_records = (("delete-records", "Delete records"), ("produce", "Produce a message"))
    chosen = (*names, *of_records) if frame.may_write else ()
    return [h.a(".button", href=link(frame, f"{here}/{action}"))[title] for action, title in chosen]


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _readers(frame: Frame, readers: Mapping[str, int | Unknown]) -> h.Node:
    if not readers:
        return h.p["No group that you may see reads this topic."]
    columns = (
        Column("Group", lambda each: h.a(href=link(frame, path_of("groups", each[0])))[each[0]]),
        Column("Lag", lambda each: figure(each[1]), is_number=True),
    )
    return table(columns, sorted(readers.items())[:ROWS_MAX])


def _configs(detail: Detail) -> h.Node:
    if detail.configs is None:
        return h.p(".problem")[detail.failure]
    columns = (
        Column("Config", lambda each: each.name),
        Column("Value", lambda each: h.em(".unknown")["secret"] if each.value is None else each.value),
        Column("Source", lambda each: each.source),
    )
    return table(columns, detail.configs)


def group(
    frame: Frame,
    row: Group,
    seen: GroupSeen,
    lags: Sequence[GroupLag],
    detail: Detail | None,
    manifest: Manifest | str | None,
) -> h.Element:
    """Return the page of a group: members, and its place in each partition."""
    here, is_share = path_of("groups", row.group_id), seen.lags is not None
    columns = (
        linked(frame, "topics", "Topic", "topic"),
        Column("Partition", lambda each: str(each.partition), is_number=True),
        Column(START if is_share else "Committed", lambda each: figure(each.committed), is_number=True),
        Column("End", lambda each: figure(each.end), is_number=True),
        Column("Lag", lambda each: figure(each.lag), is_number=True),
        Column("Read by", lambda each: each.client_id or h.em(".unknown")["nobody"]),
    )
    return whole(
        frame,
        row.group_id,
        frame.may_write
        and manifest is None
        and h.p[h.a(".button", href=link(frame, f"{here}/reset"))["Reset offsets"]],
        live(
            frame,
            _about_group(row, seen, _dead_letters(frame, detail) if detail is not None and is_share else None),
            h.h2["Lag of each partition"],
            is_share and h.p[ABOUT_SHARES],
            isinstance(seen.committed, Unknown) and h.p["Committed offsets: ", figure(seen.committed)],
            cut(lags, GROUP_ROWS_MAX),
            table(columns, lags[:GROUP_ROWS_MAX]),
            h.h2["Members"],
            _members(seen),
            detail is not None and [h.h2["Configs"], _configs(detail)],
        ),
        _manifest(manifest),
    )


def _about_group(row: Group, seen: GroupSeen, dead_letters: h.Node) -> h.Node:
    rows: list[tuple[str, h.Node]] = [
        ("Type", row.group_type),
        ("State", row.state),
        ("Members", figure(row.members)),
        ("Lag", figure(row.lag)),
        ("Epoch", "none" if seen.epoch is None else str(seen.epoch)),
        ("Coordinator", str(row.coordinator)),
    ]
    return facts([*rows, *([("Dead letters", dead_letters)] if dead_letters is not None else [])])


def _dead_letters(frame: Frame, detail: Detail) -> h.Node:
    """Return the topic to which records go that nobody could process (KIP-1191)."""
    topic = next((each.value for each in detail.configs or () if each.name == DEAD_LETTERS), None)
    if detail.configs is None or topic is None:
        return h.em(".unknown")["not known"]
    return h.a(href=link(frame, path_of("topics", topic)))[topic] if topic else "go to no topic"


def _members(seen: GroupSeen) -> h.Node:
    if isinstance(seen.members, Unknown):
        return h.p[figure(seen.members)]
    shown = seen.members[:GROUP_ROWS_MAX]
    characters_max = ASSIGNED_CHARACTERS_MAX // max(1, len(shown))
    columns = (
        Column("Client id", lambda each: each.client_id),
        Column("Host", lambda each: each.host),
        Column("Member id", lambda each: each.member_id),
        Column("Epoch", lambda each: "none" if each.epoch is None else str(each.epoch), is_number=True),
        Column("Partitions", lambda each: _assigned(each.partitions, characters_max)),
    )
    return [cut(seen.members, GROUP_ROWS_MAX), table(columns, shown)]


def _assigned(partitions: Sequence[object] | None, characters_max: int) -> h.Node:
    """Return the partitions of a member, at least one; beyond so many characters, how many more there are."""
    if partitions is None:
        return h.em(".unknown")["a format of its own"]
    texts, left = list(map(str, partitions)), characters_max
    ends = [left := left - len(each) - 2 for each in texts]
    count = max(1, sum(each >= 0 for each in ends))
    shown = ", ".join(texts[:count])
    return f"{shown} and {len(texts) - count:,} more" if len(texts) > count else shown or "none"
