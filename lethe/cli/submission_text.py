"""A submission of the API in a few words: its stage with what failed, its public score."""

from lethe.client.api import JsonObject


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
