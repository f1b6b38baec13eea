"""What the list of competitions tells of each board: teams, best score, and how that compares with the oracle."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.competitions.lifecycle import is_revealed
from server.competitions.stored_file import stored_file
from server.cost_cache import CostCache
from server.disclosure import gate
from server.disclosure.gate import ShownNumber
from server.leaderboard import board_repository
from server.leaderboard.boards import board_for
from server.models.competition import Competition


@dataclass(frozen=True)
class Summary:
    """One board in short. best: None where the board is a ladder, which hides it."""

    teams: int
    best: ShownNumber | None
    share_of_oracle: ShownNumber | None


NOTHING = Summary(0, None, None)
_Summaries = dict[tuple[str, Visibility], Summary]
_kept: CostCache[_Summaries] = CostCache()


def summary(session: Session, competition: Competition) -> Summary:
    """Return the board that everybody may see: the private one once it is revealed."""
    bind = session.get_bind()

    def again() -> _Summaries:
        with Session(bind) as own:
            return _every(own)

    every = _kept.get(id(bind.engine), lambda: _every(session), in_background=again)
    visibility = Visibility.PRIVATE if is_revealed(competition) else Visibility.PUBLIC
    if stored_file(competition).tasks:
        board = board_for(session, competition, visibility, organiser=False)
        best = board.leader.entry.score if board.leader else None
        found = Summary(board.teams, best, gate.share_of(best, board.oracle))
    else:
        found = every.get((competition.id, visibility), NOTHING)
    return Summary(found.teams, None, None) if gate.shows_ladder(competition, visibility) else found


def _every(session: Session) -> _Summaries:
    marks = {
        (competition_id, Visibility(visibility)): float((oracle or {}).get("final_score", 0.0))
        for competition_id, visibility, oracle in board_repository.oracles(session)
    }
    return {
        (competition_id, visibility): Summary(teams, best, gate.share_of(best, mark))
        for visibility in Visibility
        for competition_id, teams, highest in board_repository.best_scores(session, visibility)
        for best in (gate.show_score(highest, visibility),)
        for mark in (marks.get((competition_id, visibility), 0.0),)
    }
