"""A submission of the API in words: its stage with what failed, its score, its placing, the time that it took."""

from datetime import datetime

from lethe.client.api import ApiError, JsonObject, LetheClient


def stage_text(submission: JsonObject) -> str:
    """Return the stage, with the class of the failure; of one to several tasks, with each task that failed."""
    parts = submission.get("parts") or []
    failed = [f"{part['task']}: {part['failure']['error_class']}" for part in parts if part["failure"]]
    if failed:
        return f"{submission['stage']}, failed in {len(failed)} of {len(parts)} tasks ({', '.join(failed)})"
    failure = submission["failure"] or {}
    return f"{submission['stage']}: {failure['error_class']}" if failure else str(submission["stage"])


def public_score(submission: JsonObject) -> float | None:
    """Return the public score; of one to several tasks, what its scores come to."""
    score = submission["score"]
    return score["final_score"] if score else submission.get("combined_score")


def get_placing(client: LetheClient, submission: JsonObject) -> JsonObject:
    """Return `share_of_oracle`, `rank` and `teams` of a scored submission; nothing for one without a score.

    rank: of its team's best submission on the public board; None where the team is on none.
    """
    if not submission["score"]:
        return {}
    try:
        board = client.leaderboard(submission["competition"])
    except ApiError:  # a board that the caller may not see takes nothing from the submission's own score
        return {}
    oracle = (board["oracle"] or {}).get("score")
    ranks = [row["rank"] for row in board["rows"] if row["team"] == submission["team"]]
    return {
        "share_of_oracle": submission["score"]["final_score"] / oracle if oracle else None,
        "rank": ranks[0] if ranks else None,
        "teams": board["teams"],
    }


def time_taken_s(submission: JsonObject) -> float | None:
    """Return the seconds from the upload to the score, None while there is none."""
    if not submission["score"]:
        return None
    received, scored = (
        datetime.fromisoformat(text) for text in (submission["received_at"], submission["score"]["computed_at"])
    )
    return (scored - received).total_seconds()


def share_text(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def rank_text(placing: JsonObject) -> str | None:
    return f"{placing['rank']} of {placing['teams']}" if placing.get("rank") else None


def duration_text(seconds: float | None) -> str | None:
    """Return seconds as a person says them: 42 s, 3 min 05 s, 2 h 10 min."""
    if seconds is None:
        return None
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
