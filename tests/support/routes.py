"""Who each route of the API is for, and every address, filled with the names of one competition."""

import re
from itertools import product

from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts

from server.admin.exports import ExportTable
from server.main import create_app

CHOICES = {  # what a path takes of a few known words
    "table": tuple(table.value for table in ExportTable),
    "visibility": ("public", "private"),
    "board": ("public", "private"),
}


def addresses(names: dict[str, str], methods: frozenset[str]) -> dict[tuple[str, str], bool]:
    """Return method and address of every route, filled with each of this competition's names that it takes.

    True of those that declare parameters of the query.
    """
    found = {}
    for route in iter_route_contexts(create_app().routes):
        if "static" in route.path:
            continue
        asked = re.findall(r"\{(\w+)", route.path)
        for values in product(*(CHOICES.get(name, (names.get(name, "x"),)) for name in asked)):
            filled = iter(values)
            address = re.sub(r"\{[^}]+\}", lambda _match, left=filled: next(left), route.path)
            takes = declares_parameters(getattr(route.route, "dependant", None))
            found |= {(method, address): takes for method in methods & set(route.methods or ())}
    return dict(sorted(found.items()))


def declares_parameters(dependant: Dependant | None) -> bool:
    return dependant is not None and (
        bool(dependant.query_params) or any(declares_parameters(inner) for inner in dependant.dependencies)
    )


ANYBODY, ACCOUNT, TEAM, ORGANISER, ADMINISTRATOR = "anybody", "account", "team", "organiser", "administrator"
WORKER = "worker"
MAKES_COMPETITIONS = "makes competitions"


def _at(prefix: str, method: str, paths: str) -> tuple[str, ...]:
    """Return routes below a prefix, given by their paths with spaces between; `.` is the prefix itself."""
    return tuple(f"{method} {prefix}{'' if path == '.' else f'/{path}'}" for path in paths.split())


C = "/api/v1/competitions/{slug}"
S = "/api/v1/submissions/{submission_id}"
W = "/api/v1/worker/{worker}"
HELD = f"{W}/shards/{{shard_id}}/{{attempt}}"

FOR: dict[str, tuple[str, ...]] = {
    ANYBODY: (
        *_at("", "GET", "healthz readyz"),
        *_at("/api/v1", "POST", "accounts tokens"),
        *_at("/api/v1", "GET", "competitions receipt-key metrics"),
        *_at(C, "GET", ". leaderboard starter-kit announcements terms pages pages/{name} questions"),
    ),
    ACCOUNT: (
        *_at("/api/v1", "GET", "me tokens"),
        *_at("/api/v1", "PUT", "me/mail me/password"),
        *_at("/api/v1", "POST", "me/mail/confirmation me/deletion"),
        *_at("/api/v1", "DELETE", "tokens/{token_id}"),
        *_at(
            C,
            "GET",
            "quota participation finals metrics/comparison submissions team team/invitations invitations team/merges",
        ),
        *_at(
            C,
            "POST",
            "participation/terms participation/request participation/join questions submissions teams "
            "team/leave team/join team/invitations invitations/{invitation_id}/accept "
            "invitations/{invitation_id}/decline team/merges team/merges/{request_id}/agree",
        ),
        *_at(C, "PATCH", "team"),
        *_at(C, "PUT", "team/leader"),
        *_at(C, "DELETE", "team/invitations/{invitation_id} team/merges/{request_id}"),
    ),
    TEAM: (
        *_at(S, "GET", ". code log receipt sample-answers metrics"),
        *_at(S, "POST", "cancel"),
        *_at(S, "PUT", "selection publication"),
        *_at(S, "DELETE", "selection publication"),
    ),
    MAKES_COMPETITIONS: (
        *_at("/api/v1", "POST", "competitions datasets"),
        *_at(
            "/api/v1",
            "GET",
            "dashboard dashboard/activity datasets benchmarks benchmarks/{slug} benchmarks/{slug}/results",
        ),
        *_at("/api/v1", "DELETE", "datasets/{name}"),
        *_at("/api/v1", "PUT", "benchmarks/{slug}"),
    ),
    ORGANISER: (
        *_at(
            C,
            "GET",
            "preparation splits/{visibility}/report rescoring all-submissions participants links addresses "
            "all-questions texts/{name}/versions overview activity people "
            "submissions/{submission_id}/analysis submissions/{submission_id}/arrays "
            "submissions/{submission_id}/answers submissions/{submission_id}/comparison "
            "submissions/{submission_id}/suggested-comparisons audit audit/actions exports/{table} bundle "
            "rejudgings rejudgings/{rejudging_id} webhooks webhooks/{webhook_id}/deliveries worker-tokens "
            "workers metrics",
        ),
        *_at(
            C,
            "POST",
            "prepare cancel-preparation splits/{visibility}/replacement open close "
            "finals/{submission_id}/decision reveal announcements submissions/{submission_id}/acts "
            "teams/{team_id}/acts participants/{name}/decision links archive rejudgings "
            "rejudgings/{rejudging_id}/preview rejudgings/{rejudging_id}/apply "
            "rejudgings/{rejudging_id}/discard webhooks worker-tokens metrics/recompute",
        ),
        *_at(C, "DELETE", ". links/{link_id} webhooks/{webhook_id} worker-tokens/{token_id}"),
        *_at(C, "PATCH", ". addresses"),
        *_at(C, "PUT", "questions/{question_id}/answer"),
    ),
    WORKER: (
        *_at(W, "PUT", ". state"),
        *_at(W, "POST", "claim"),
        *_at(HELD, "GET", "files/{sha256}"),
        *_at(HELD, "PUT", "lease controls result weights"),
        *_at(HELD, "POST", "passed failure give-back hand-over over-time"),
    ),
    ADMINISTRATOR: (
        *_at("/api/v1", "GET", "admin/accounts admin/audit"),
        *_at("/api/v1", "POST", "admin/accounts/{name}/acts admin/accounts/{name}/reset-link"),
    ),
}
