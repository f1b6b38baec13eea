"""What a public score is made of, where organisers open it: beside exact retraining, the entry before and fine-tuning.

It is made from values of the gate alone, so it tells no more than these, which the leak budget counts.
"""

from sqlalchemy.orm import Session

from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.explanation import Explanation, ScoreParts, explain
from server.competitions.stored_file import stored_file
from server.disclosure import gate
from server.disclosure.gate import Breakdown
from server.models.competition import Split
from server.submissions import repository
from server.submissions.views import SubmissionView

FINETUNE = "finetune"  # the reference line that scores are compared with, if the competition file names it


def find_explanation(session: Session, view: SubmissionView, split: Split | None) -> Explanation | None:
    """Return what the submission's public score is made of; None where its factors are not shown."""
    own = view.score.breakdown if view.score else None
    if own is None:
        return None
    oracle = Breakdown.of_oracle(split.oracle if split else None)
    submission = view.submission
    attacks = stored_file(submission.competition).scoring.attacks
    others = {
        "the entry before": repository.score_before(session, submission),
        "fine-tuning": repository.baseline_score(session, submission, FINETUNE),
    }
    shown = {
        name: _parts(gate.score(found, submission.competition).breakdown if found else None, attacks)
        for name, found in others.items()
    }
    parts = _parts(own, attacks)
    return explain(parts, oracle=_parts(oracle, attacks), others=shown) if parts else None


def _parts(breakdown: Breakdown | None, attacks: AttackFamily) -> ScoreParts | None:
    if breakdown is None:
        return None
    return ScoreParts(
        breakdown.forgetting_quality,
        breakdown.retain_ratio,
        breakdown.test_ratio,
        breakdown.epsilon_percentiles,
        breakdown.spread_ratio,
        breakdown.share_above,
        attacks,
    )
