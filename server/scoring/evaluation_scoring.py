"""How an evaluation is scored: as its competition says, or as its re-judging tries."""

from typing import Any

from sqlalchemy.orm import Session

from lethe.competition.file import Scoring
from lethe.competition.stored_document import read_stored
from server.competitions.stored_file import stored_file
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation
from server.models.rejudging import Rejudging

SAME_SCORE = 1e-12


def get_scoring(session: Session, evaluation: Evaluation) -> Scoring:
    """Return the section [scoring]. Once a re-judging is applied, the competition's is the one that it tried."""
    tried = None if evaluation.is_current else session.get(Rejudging, evaluation.rejudging_id)
    if tried is not None and tried.scoring is not None:
        return read_stored(Scoring, tried.scoring)
    split = session.get_one(Split, evaluation.split_id)
    return stored_file(session.get_one(Competition, split.competition_id)).scoring


def note_oracle(session: Session, evaluation: Evaluation, oracle: dict[str, Any]) -> None:
    """Keep the oracle's score by the scoring of an evaluation: with its split, or until its re-judging is applied."""
    if not evaluation.is_current:
        tried = session.get(Rejudging, evaluation.rejudging_id)
        if tried is not None and tried.scoring is not None:
            tried.oracle = oracle
        return
    split = session.get_one(Split, evaluation.split_id)
    known = (split.oracle or {}).get("final_score")
    if known is not None and abs(known - oracle["final_score"]) > SAME_SCORE:
        split.oracle = {**(split.oracle or {}), **oracle}
