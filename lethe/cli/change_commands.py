"""`lethe competition update|archive|extend|limits|announce|confirm|disqualify|restore`: changing one that exists."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from lethe.cli.context import Server, Slug
from lethe.cli.id_prefixes import the_only_match
from lethe.cli.organiser_commands import File, FileOnly, checked_and_sent, print_organised
from lethe.cli.output import console, local_time, print_facts, print_table
from lethe.client.api import JsonObject, LetheClient
from lethe.errors import InvalidInput, NotFound
from lethe.text_files import read_text

Why = Annotated[str, typer.Option("--reason", help="Why; it is recorded in the audit log.")]
WhyOrNot = Annotated[str, typer.Option("--reason", help="Why; it is recorded in the audit log.")]
Team = Annotated[str | None, typer.Option("--team", help="A team by its name, instead of a submission.")]
SubmissionId = Annotated[str | None, typer.Argument(help="A submission's id, or its first characters.", metavar="[ID]")]


def update(
    server: Server,
    file: File,
    *,
    texts: Annotated[
        bool, typer.Option("--texts", help="Only title, summary and description: possible until it is archived.")
    ] = False,
    file_only: FileOnly = False,
    reason: WhyOrNot = "",
) -> None:
    """Replace the file of a draft; with --texts, change what a competition says of itself."""
    from lethe.competition.file import read_competition_file

    if texts:
        checked = read_competition_file(file)
        body = {"title": checked.title, "summary": checked.summary, "description": checked.description}
        found = server.client.patch(f"/competitions/{checked.slug}", body | {"reason": _needed(reason)})
    else:
        checked, text = checked_and_sent(server, file, looks=not file_only)
        found = server.client.replace_competition_file(checked.slug, text)
    print_organised(server, found)


def replace_split(
    server: Server,
    competition: Slug,
    visibility: Annotated[str, typer.Argument(help="public or private.", metavar="SPLIT")],
    *,
    reason: Why,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="A competition file whose section dataset names the corrected data.", exists=True),
    ] = None,
    file_only: FileOnly = False,
) -> None:
    """Prepare a split again beside the present one, from corrected data. Nothing changes until `lethe rejudge start
    --changed split` is applied; a split on which nothing was evaluated is replaced as soon as the new one is ready.
    """
    body: JsonObject = {"reason": reason}
    if file is not None:
        body["dataset"] = _dataset_section(server, file, competition, looks=not file_only)
    found = server.client.post(f"/competitions/{competition}/splits/{visibility}/replacement", body)
    print_organised(server, found)


def _dataset_section(server: Server, path: Path, slug: str, *, looks: bool) -> JsonObject:
    """Return the section of a competition or a task, checked as by `create`; what lies beside the file is uploaded."""
    from lethe.competition.file import parse_competition, read_competition_file

    known = [each.slug for each in read_competition_file(path).evaluated]
    if slug not in known:
        raise InvalidInput(f"{path} is the file of {', '.join(known)}, not of {slug}")
    _, text = checked_and_sent(server, path, looks=looks, is_new=False)
    sections = {each.slug: each.dataset for each in parse_competition(text, source=str(path)).evaluated}
    return sections[slug].model_dump(mode="json")


def archive(server: Server, competition: Slug, reason: WhyOrNot = "") -> None:
    """Archive a competition: everything can still be read, nothing changes any more."""
    print_organised(server, server.client.act(competition, "archive", {"reason": reason}))


def extend(
    server: Server,
    competition: Slug,
    until: Annotated[str, typer.Argument(help="The new end, such as 2030-03-01T12:00; UTC without a zone.")],
    *,
    reason: Why,
    team: Annotated[str | None, typer.Option("--team", help="Only for this team: finals wait for it.")] = None,
) -> None:
    """Set another end, or with --team one team's. A closed competition opens again, unless its finals are being
    scored."""
    body = {"closes_at": _moment(until).isoformat(), "reason": reason}
    if team is not None:
        act = {"act": "extend", "until": body["closes_at"], "reason": reason}
        server.client.post(f"/competitions/{competition}/teams/{_team_id(server.client, competition, team)}/acts", act)
        server.answer({"team": team, "until": body["closes_at"]})
        print_facts((("team", team), ("may submit until", local_time(body["closes_at"]))))
        return
    found = server.client.put(f"/competitions/{competition}/deadline", body)
    server.answer(found)
    print_facts((("competition", competition), ("state", found["state"]), ("closes", local_time(found["closes_at"]))))


def limits(
    server: Server,
    competition: Slug,
    *,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE, such as submissions_per_day=3. May be repeated.")
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only say whom it would affect.")] = False,
    reason: WhyOrNot = "",
) -> None:
    """Show the limits; with --set, change them."""
    if not settings:
        found = server.client.competition(competition)["limits"]
    else:
        changed = dict(_setting(each) for each in settings)
        why = reason if preview and reason else "preview" if preview else _needed(reason)
        body = {"limits": changed, "preview": preview, "reason": why}
        found = server.client.put(f"/competitions/{competition}/limits", body)
    server.answer(found)
    if not settings:
        print_facts((name, "no limit" if value is None else value) for name, value in found.items())
    else:
        _print_change(found)


def announce(
    server: Server,
    competition: Slug,
    *,
    title: Annotated[str, typer.Option("--title", help="Its heading.")],
    text: Annotated[str | None, typer.Option("--text", help="Markdown.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="A file with the text instead.", exists=True, dir_okay=False)
    ] = None,
) -> None:
    """Publish an announcement; everybody who takes part is notified."""
    if (text is None) == (file is None):
        raise InvalidInput("give the text with --text, or a file with --file, not both")
    shown = read_text(file) if file is not None else text
    found = server.client.post(f"/competitions/{competition}/announcements", {"title": title, "text": shown})
    server.answer(found)
    console.print(f"Announced: {title}", highlight=False, markup=False)


def confirm(
    server: Server,
    competition: Slug,
    submission: Annotated[str, typer.Argument(help="A submission's id, or its first characters.", metavar="ID")],
    *,
    reason: Why,
    split: Annotated[str, typer.Option("--split", help="Whose score: public or private.")] = "public",
) -> None:
    """Confirm an unconfirmed score, which then takes its rank."""
    _moderate(server, competition, submission, None, {"act": "confirm", "split": split, "reason": reason})


def disqualify(
    server: Server, competition: Slug, submission: SubmissionId = None, *, reason: Why, team: Team = None
) -> None:
    """Disqualify a submission, or with --team a team: neither is on a leaderboard then."""
    _moderate(server, competition, submission, team, {"act": "disqualify", "reason": reason})


def restore(
    server: Server, competition: Slug, submission: SubmissionId = None, *, reason: Why, team: Team = None
) -> None:
    """Take the disqualification of a submission, or with --team of a team, back."""
    _moderate(server, competition, submission, team, {"act": "restore", "reason": reason})


def _moderate(server: Server, slug: str, submission: str | None, team: str | None, body: JsonObject) -> None:
    if (submission is None) == (team is None):
        raise InvalidInput("name a submission, or a team with --team, not both")
    act = body["act"]
    if team is not None:
        subject = _team_id(server.client, slug, team)
        server.client.post(f"/competitions/{slug}/teams/{subject}/acts", body)
        found: JsonObject = {"team": team, "id": subject, "act": act}
    else:
        subject = organised_submission(server.client, slug, submission or "")
        found = server.client.post(f"/competitions/{slug}/submissions/{subject}/acts", body)
    server.answer(found)
    done = {"confirm": "Confirmed", "disqualify": "Disqualified", "restore": "Restored"}[act]
    console.print(f"{done}: {f'team {team}' if team else f'submission {subject}'}", highlight=False, markup=False)


def organised_submission(client: LetheClient, slug: str, given: str) -> str:
    """Return the id of the competition's only submission whose id begins with `given`. Raises InvalidInput."""
    if len(given) == 16:
        return given
    known = [row["id"] for row in client.get(f"/competitions/{slug}/all-submissions", text=given, page=1)]
    return the_only_match(given, known, what=f"submissions of {slug}")


def _team_id(client: LetheClient, slug: str, name: str) -> str:
    listed = client.get(f"/competitions/{slug}/people", team=name)["teams"]
    same = [team for team in listed if team["name"].casefold() == name.casefold()]
    if not same:
        near = ", ".join(team["name"] for team in listed[:5])
        raise NotFound(f"{slug} has no team called {name!r}" + (f"; there are: {near}" if near else ""))
    return str(same[0]["id"])


def _setting(text: str) -> tuple[str, Any]:
    """Return name and value; the value is read as TOML, `none` means: no limit."""
    name, sign, value = text.partition("=")
    if not sign:
        raise InvalidInput(f"--set {text!r} needs the form NAME=VALUE")
    if value.strip().lower() in ("none", "null"):
        return name.strip(), None
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value.strip()


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not a date with a time, such as 2030-03-01T12:00") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _needed(reason: str) -> str:
    if not reason.strip():
        raise InvalidInput("--reason is needed for a change: it is recorded in the audit log")
    return reason


def _print_change(found: JsonObject) -> None:
    rows = [(name, old, new) for name, (old, new) in found["changed"].items()]
    print_table("", ("limit", "before#", "after#"), rows, empty="Nothing differs.")
    affected = ("over_daily_quota", "over_total_quota", "too_large", "too_many_finals")
    print_facts(
        [
            ("applied", "yes" if found["applied"] else "no, only previewed"),
            *((name.replace("_", " "), ", ".join(found[name])) for name in affected),
            ("submissions still running", found["unfinished"] or None),
        ]
    )
