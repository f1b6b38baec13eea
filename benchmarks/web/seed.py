"""Fill a database with a competition of many teams, as after weeks of use. `python -m benchmarks.web.seed --help`."""

import argparse
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import insert

from benchmarks.web.people import AFTER_THE_END, EXAMPLE, PASSWORD, People, Row
from benchmarks.web.runs import Runs
from benchmarks.web.sent import CODE, CODE_SHA256, Sent
from lethe.competition.file import parse_competition
from server.db import Base, Database, now
from server.migrate import upgrade
from server.models.account import Account
from server.models.competition import Competition, CompetitionOrganiser, Membership, Split, Team
from server.models.evaluation import Evaluation, MetricResult, PrivateScore, PublicScore, RunLog, Shard, ShardAttempt
from server.models.submission import Submission
from server.models.worker import Worker
from server.storage import Storage, content_key

BATCH = 5000


@dataclass(frozen=True)
class Seeded:
    """What a test or a benchmark needs to know of the seeded competition."""

    slug: str
    competition_id: str
    password: str
    organiser: str
    participant: str
    own_team_id: str
    running_submission_id: str
    failed_submission_id: str
    scored_submission_id: str
    other_scored_submission_id: str


def seed(
    database: Database,
    *,
    teams: int,
    submissions: int,
    state: str = "open",
    rng_seed: int = 1,
    storage: Storage | None = None,
    show_intervals: bool = False,
) -> Seeded:
    """Fill `database`, which is migrated and empty. The team named `ada` is the participant's."""
    rng, at = random.Random(rng_seed), now()
    file = parse_competition(EXAMPLE.read_text())
    file = file.model_copy(update={"scoring": file.scoring.model_copy(update={"show_intervals": show_intervals})})
    people = People(at, file=file, teams=teams, state=state)
    sent = Sent(rng, at, file=file, teams=teams, submissions=submissions, is_over=state in AFTER_THE_END)
    runs = Runs(sent.numpy, at, file=file, looked_at=sent.looked_at())
    if storage:
        storage.write(content_key(CODE_SHA256), CODE)
        runs.hashes = {key: storage.write(key, content) for key, content in runs.outputs()}
    with database.engine.begin() as connection:
        for table, rows in _tables(people, sent, runs):
            for some in _batches(rows):
                connection.execute(insert(table), some)
    return Seeded(
        slug=file.slug,
        competition_id="c",
        password=PASSWORD,
        organiser="grace",
        participant="ada",
        own_team_id="t0",
        running_submission_id=sent.newest("running"),
        failed_submission_id=sent.newest("failed"),
        scored_submission_id=sent.newest("scored"),
        other_scored_submission_id=sent.newest("scored", before=1),
    )


def _tables(people: People, sent: Sent, runs: Runs) -> Iterator[tuple[type[Base], Iterable[Row]]]:
    """Yield the rows of every table, in an order that foreign keys allow."""
    yield Account, people.accounts()
    yield Competition, [people.competition()]
    yield CompetitionOrganiser, [{"competition_id": "c", "account_id": "organiser"}]
    yield Split, people.splits()
    yield Team, people.team_rows()
    yield Membership, people.memberships()
    yield Submission, sent.rows
    yield Evaluation, sent.evaluations()
    yield PublicScore, sent.scores()
    yield PrivateScore, sent.private_scores()
    yield MetricResult, sent.metric_results()
    yield Shard, runs.shards()
    yield ShardAttempt, runs.attempts()
    yield RunLog, runs.logs()
    yield Worker, runs.workers()


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    remaining = iter(rows)
    while some := list(islice(remaining, BATCH)):
        yield some


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--storage-url", help="where the code of the submissions is put")
    parser.add_argument("--teams", type=int, default=40)
    parser.add_argument("--submissions", type=int, default=400)
    parser.add_argument("--state", default="open")
    parser.add_argument("--show-intervals", action="store_true", help="the board has the interval of each score")
    options = parser.parse_args()
    upgrade(options.database_url)
    database = Database(options.database_url)
    storage = Storage(options.storage_url) if options.storage_url else None
    made = seed(
        database,
        teams=options.teams,
        submissions=options.submissions,
        state=options.state,
        storage=storage,
        show_intervals=options.show_intervals,
    )
    print(made)
    database.dispose()


if __name__ == "__main__":
    main()
