"""`lethe competition analysis|compare`: one submission for its organisers."""

from typing import Annotated

import typer

from lethe.cli.context import Json, Slug, Url, connected
from lethe.cli.output import print_facts, print_json, print_table, score_text
from lethe.client.api import JsonObject

Split = Annotated[str, typer.Option("--split", help="public, or private once the competition has closed.")]
SubmissionId = Annotated[str, typer.Argument(help="The submission's id.", metavar="SUBMISSION")]


def analysis(
    competition: Slug,
    submission: SubmissionId,
    *,
    split: Split = "public",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show one submission's score and its parts, its attempts and how its runs compare with retrained models."""
    with connected(url) as client:
        found = client.get(f"/competitions/{competition}/submissions/{submission}/analysis", split=split)
    if as_json:
        print_json(found)
        return
    score: JsonObject = found["score"] or {}
    epsilon = sorted(value for value in found["epsilon"] or () if value is not None)
    print_facts(
        (
            ("submission", found["id"]),
            ("team", found["team"]),
            ("split", found["split"]),
            ("stage", found["stage"]),
            ("score", score_text(score.get("final_score"))),
            ("forgetting quality", score_text(score.get("forgetting_quality"))),
            ("retain ratio", score_text(score.get("retain_ratio"))),
            ("test ratio", score_text(score.get("test_ratio"))),
            ("scorer version", score.get("scorer_version")),
            ("forget examples", len(found["epsilon"]) if found["epsilon"] else None),
            ("median epsilon", f"{epsilon[len(epsilon) // 2]:.3f}" if epsilon else None),
        )
    )
    rows = (
        (row["kind"], row["first_run"] + 1, row["n_runs"], row["attempt"], row["worker"], row["outcome"])
        for row in found["attempts"]
    )
    columns = ("kind", "first run#", "runs#", "attempt#", "worker", "outcome")
    print_table("Attempts", columns, rows, empty="No attempts yet.")


def compare(
    competition: Slug,
    submission: SubmissionId,
    other: Annotated[str | None, typer.Argument(help="The other submission's id. Without it, suggestions.")] = None,
    *,
    split: Split = "public",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Compare the scores of two submissions by the paired test over models."""
    base = f"/competitions/{competition}/submissions/{submission}"
    with connected(url) as client:
        if other is None:
            found = client.get(f"{base}/suggested-comparisons", split=split)
        else:
            found = client.get(f"{base}/comparison", split=split, other=other)
    if as_json:
        print_json(found)
    elif other is None:
        rows = ((row["id"], row["description"]) for row in found)
        print_table("", ("id", "submission"), rows, empty="No other submission has a score.")
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
