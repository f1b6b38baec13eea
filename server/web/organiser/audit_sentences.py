"""The audit log in sentences: who did what, with a link to what it was done to."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from sqlalchemy.orm import Session

from server.datetime_format import in_words
from server.models.account import AuditEvent
from server.teams import teams

# What stands after the name of who did it; {it} is the link. Other words in braces are values of the event's data.
SENTENCES = {
    "admission_link.made": "made a link that admits {uses}",
    "admission_link.revoked": "revoked a link that admits people",
    "competition.announced": "published an announcement",
    "competition.archived": "archived {it}",
    "competition.back_to_draft": "made {it} a draft again",
    "competition.closed": "closed {it}",
    "competition.created": "created {it}",
    "competition.deleted": "deleted a draft",
    "competition.described": "changed the description of {it}: {changed}",
    "competition.end_changed": "moved the end of {it} from {from} to {to}",
    "competition.finals_frozen": "fixed the finals of {it}",
    "competition.imported": "imported {it}",
    "competition.limits_changed": "changed the limits of {it}",
    "competition.measured_again": "had one retraining of {it} measured again",
    "competition.retraining_changed": "measured one retraining of the {split} split of {it}: {to} in place of {from}",
    "competition.opened": "opened {it}",
    "competition.organiser_added": "made {account} an organiser",
    "competition.organiser_removed": "took the organiser's rights from {account}",
    "competition.preparing": "began to prepare {it}",
    "competition.provisional": "finished the private scores of {it}",
    "competition.ready": "finished the preparation of {it}",
    "competition.revealed": "revealed the private leaderboard of {it}",
    "competition.settings_changed": "changed settings of {it}: {changed}",
    "competition.rewritten": "replaced the file of {it}",
    "final.excluded": "excluded {it} from the private leaderboard",
    "final.replaced": "let {it} take the place of another final",
    "final.run_again": "ran {it} again on the private split",
    "participant.accepted_terms": "accepted version {version} of the terms",
    "participant.addresses": "added {added} and removed {removed} addresses of those who are admitted",
    "participant.admitted": "admitted {account}",
    "participant.asked": "asked to take part",
    "participant.came_by_link": "came by a link",
    "participant.refused": "refused {account}",
    "question.answered": "answered a question",
    "question.asked": "asked a question",
    "rejudging.applied": "applied the scores of {it}",
    "rejudging.discarded": "discarded {it}",
    "rejudging.started": "started {it} of {submissions} submissions on the {split} split",
    "split.data_differs": "found that the data of the {split} split of {it} has changed: {difference}",
    "split.replaced": "replaced the {split} split of {it} by version {version}",
    "split.replacement_started": "began to prepare version {version} of the {split} split of {it}",
    "submission.cancelled": "cancelled {it}",
    "submission.confirmed": "confirmed the {split} score of {it}",
    "submission.deselected": "deselected {it}",
    "submission.disqualified": "disqualified {it}",
    "submission.received": "sent {it}",
    "submission.results_damaged": "makes {runs} runs of {it} again: their stored outputs were damaged or lost",
    "submission.restored": "restored {it}",
    "competition.work_waits": "wrote to the organisers that nobody can do work of {it}: {found}",
    "split.damaged": "had every file of the {split} split of {it} checked, because one is damaged: {found}",
    "submission.run_again": "ran {it} again on the public split",
    "submission.run_again_failed": "could not run {it} again ({error_class}); the score before it counts",
    "submission.publication_allowed": "lets the code of {it} be published",
    "submission.publication_withdrawn": "no longer lets the code of {it} be published",
    "submission.selected": "chose {it} as a final",
    "team.created": "made {it}",
    "team.disqualified": "disqualified {it}",
    "team.extended": "moved the end of {it} from {from} to {to}",
    "team.handed_over": "made {leader} the leader of {it}",
    "team.invited": "invited somebody to {it}",
    "team.joined": "joined {it}",
    "team.left": "left {it}",
    "team.merge_asked": "asked that {it} is merged with another team",
    "team.merged": "merged {name} into {it}",
    "team.renamed": "renamed {it} from {from} to {to}",
    "team.restored": "restored {it}",
    "webhook.created": "added a webhook to {host}",
    "webhook.removed": "removed a webhook",
    "worker_token.issued": "made a worker token, {name}",
    "worker_token.quarantined": "quarantined the worker token {name}",
    "worker_token.revoked": "revoked the worker token {name}",
}
SYSTEM = "The server"
LONG_ID = re.compile(r"[0-9a-f]{16,}")
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d[\d:.]*(?:\+\d\d:\d\d|Z)")


@dataclass(frozen=True)
class Sentence:
    """One event. before and after stand around the link, which may be empty; data: what the sentence does not say."""

    event: AuditEvent
    who: str
    before: str
    link: str
    href: str
    after: str
    data: dict[str, str]


def sentences(session: Session, events: Sequence[AuditEvent], *, slug: str) -> list[Sentence]:
    """Return the events of one competition as sentences, in the same order."""
    ids = [event.subject for event in events if event.action.startswith("team.")]
    names = teams.names(session, ids)
    return [_sentence(event, slug=slug, team_names=names) for event in events]


def _sentence(event: AuditEvent, *, slug: str, team_names: Mapping[str, str]) -> Sentence:
    template = SENTENCES.get(event.action, f"did “{event.action}” to {{it}}")
    before, _, after = template.partition("{it}")
    has_link = "{it}" in template
    link, href = _subject(event, slug=slug, team_names=team_names) if has_link else ("", "")
    said = {name: value for name, value in event.data.items() if f"{{{name}}}" in template}
    return Sentence(
        event=event,
        who=SYSTEM if event.actor == "system" else event.actor,
        before=_filled(before, said),
        link=link,
        href=href,
        after=_filled(after, said),
        data={
            name: _shown(value) for name, value in event.data.items() if name not in said and value not in (None, "")
        },
    )


def _subject(event: AuditEvent, *, slug: str, team_names: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of what the event is about, and where it is shown."""
    kind, base = event.action.partition(".")[0], f"/organise/{slug}"
    if kind in ("submission", "final"):
        return f"submission {event.subject[:8]}", f"{base}/submissions/{quote(event.subject)}"
    if kind == "team":
        name = team_names.get(event.subject, "")
        return (f"the team {name}", f"{base}/teams?q={quote(name)}") if name else ("a team", f"{base}/teams")
    if kind == "rejudging":
        return "a re-judging", f"{base}/rejudgings/{quote(event.subject)}"
    return "the competition", base


def _filled(text: str, said: Mapping[str, Any]) -> str:
    for name, value in said.items():
        text = text.replace(f"{{{name}}}", _shown(value))
    return text


def _shown(value: Any) -> str:
    """Return a value of an event's data in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict) and set(value) == {"from", "to"}:
        return f"{_shown(value['from'])} → {_shown(value['to'])}"
    if isinstance(value, list):
        return ", ".join(_shown(one) for one in value[:5]) + (f" and {len(value) - 5} more" if len(value) > 5 else "")
    if isinstance(value, str) and TIMESTAMP.fullmatch(value):
        return in_words(datetime.fromisoformat(value))
    if isinstance(value, str) and LONG_ID.fullmatch(value):
        return f"{value[:12]}…"  # in full in the export
    return "none" if value is None else str(value)
