"""`lethe competition analysis|compare`: one submission for its organisers."""

from typing import Annotated

import typer

from lethe.cli.context import Server, Slug
from lethe.cli.output import Columns, print_facts, print_rows, score_text
from lethe.client.api import JsonObject

Split = Annotated[str, typer.Option("--split", help="public, or private once the competition has closed.")]
SubmissionId = Annotated[str, typer.Argument(help="The submission's id.", metavar="SUBMISSION")]


def analysis(server: Server, competition: Slug, submission: SubmissionId, *, split: Split = "public") -> None:
    """Show one submission's score and its parts, its attempts and how its runs compare with retrained models."""
    found = server.client.get(f"/competitions/{competition}/submissions/{submission}/analysis", split=split)
    server.answer(found)
    score: JsonObject = found["score"] or {}
    epsilon = sorted(value for value in found["epsilon"] or () if value is not None)
    print_facts(
        (
            ("submission", found["id"]),
            ("team", found["team"]),
            ("same file sent by", ", ".join(found.get("same_file_of") or ()) or None),
            ("split", found["split"]),
            ("stage", found["stage"]),
            ("score", score_text(score.get("final_score"))),
            ("forgetting quality", score_text(score.get("forgetting_quality"))),
            ("retain ratio", score_text(score.get("retain_ratio"))),
            ("test ratio", score_text(score.get("test_ratio"))),
            ("scorer version", score.get("scorer_version")),
            ("forget examples", len(found["epsilon"]) if found["epsilon"] else None),
            ("median epsilon", f"{epsilon[len(epsilon) // 2]:.3f}" if epsilon else None),
            ("disagreement", _disagreement(found.get("doubt"))),
            ("unconfirmed", "it takes no rank until you confirm it" if score.get("is_unconfirmed") else None),
            *(("", reason) for reason in (found.get("doubt") or {}).get("reasons", ())),
        )
    )
    columns: Columns = {
        "kind": "kind",
        "first run#": lambda row: row["first_run"] + 1,
        "runs#": "n_runs",
        "attempt#": "attempt",
    }
    columns |= {"worker": "worker", "outcome": "outcome"}
    print_rows(found["attempts"], columns, title="Attempts", empty="No attempts yet.")


def _disagreement(doubt: JsonObject | None) -> str | None:
    """Return by how much the attack families disagree, beside what honest entries have."""
    if not doubt or doubt["disagreement"] is None:
        return None
    return f"{doubt['disagreement']:.1%} of the oracle; honest entries have at most {doubt['honest_disagreement']:.0%}"


def compare(
    server: Server,
    competition: Slug,
    submission: SubmissionId,
    other: Annotated[str | None, typer.Argument(help="The other submission's id. Without it, suggestions.")] = None,
    *,
    split: Split = "public",
) -> None:
    """Compare the scores of two submissions by the paired test over models."""
    base = f"/competitions/{competition}/submissions/{submission}"
    found = server.client.get(f"{base}/{'comparison' if other else 'suggested-comparisons'}", split=split, other=other)
    server.answer(found)
    if other is None:
        print_rows(found, {"id": "id", "submission": "description"}, empty="No other submission has a score.")
    else:
        _print_comparison(found)


def _print_comparison(found: JsonObject) -> None:
    low, high = score_text(found["interval_low"]), score_text(found["interval_high"])
    print_facts(
        (
            ("first", found["first"]),
            ("second", found["second"]),
            ("difference", f"{found['difference']:+.6f}"),
            ("95 % interval", f"{low} to {high}"),
            ("p value", f"{found['p_value']:.4f}"),
            ("better", found["winner"] or "the test does not distinguish them"),
        )
    )
