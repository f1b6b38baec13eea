"""A scored submission of a competition with a report, and metrics computed as the worker's task would."""

from sqlalchemy import select

from server.metric_results import metric_results
from server.metric_results.metric_results import ComputedMetric
from server.models.competition import Competition
from server.models.evaluation import Evaluation
from tests.support.instance import GOOD_CODE, Instance

BASE = "/api/v1/competitions/digits"
REPORT = {"metrics": [{"id": "accuracy_gap"}, {"id": "klom"}], "visible_to_participants": "public"}


def scored(server: Instance, **report: object) -> str:
    """Make a competition with a report and a scored submission of ada's. Return its id."""
    server.competition()
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = competition.config | {"report": REPORT | report}
    sent = server.submit(server.participant("ada"), GOOD_CODE).json()["id"]
    server.score(sent, 0.5)
    return str(sent)


def compute(server: Instance, submission: str, value: float = 0.123456) -> None:
    """Do what the worker's task would."""
    with server.database.write() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission)).one()
        computed = ComputedMetric(metric_version=1, value=value, oracle=0.0123456, original=0.3, table={"n": 1})
        metric_results.record(
            session, {each.row_id: computed for each in metric_results.waiting(session, evaluation.id)}
        )
