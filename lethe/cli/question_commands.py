"""`lethe questions`, `ask`, `pages`, and `lethe competition questions|answer` for organisers."""

from typing import Annotated

import typer

from lethe.cli.context import Competition, Json, Slug, Url, chosen_competition, connected
from lethe.cli.id_prefixes import the_only_match
from lethe.cli.output import console, local_time, print_json, print_table

Text = Annotated[str, typer.Argument(help="The question.", metavar="TEXT")]


def register_commands(app: typer.Typer) -> None:
    app.command()(questions)
    app.command()(ask)
    app.command()(pages)


def questions(competition: Competition = None, url: Url = None, as_json: Json = False) -> None:
    """Show the questions that are answered to all, and your own."""
    with connected(url, anonymous=True) as client:
        found = client.get(f"/competitions/{chosen_competition(client, competition)}/questions")
    if as_json:
        print_json(found)
        return
    rows = ((row["question"], row["answer"] or "no answer yet", _whose(row)) for row in found)
    print_table("", ("question", "answer", ""), rows, empty="No question is answered to all yet.")


def ask(text: Text, competition: Competition = None, url: Url = None, as_json: Json = False) -> None:
    """Ask the organisers. They answer you, or all without your name."""
    with connected(url) as client:
        found = client.post(f"/competitions/{chosen_competition(client, competition)}/questions", {"text": text})
    if as_json:
        print_json(found)
        return
    console.print("Asked. `lethe questions` shows the answer, and you get a message.")


def pages(
    name: Annotated[str | None, typer.Argument(help="data, rules, evaluation, prizes or faq.")] = None,
    competition: Competition = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the pages that a competition has beside its description; with a name, one of them."""
    with connected(url, anonymous=True) as client:
        base = f"/competitions/{chosen_competition(client, competition)}/pages"
        found = client.get(f"{base}/{name}" if name else base)
    if as_json:
        print_json(found)
    elif name:
        console.print(found["text"], highlight=False, markup=False, soft_wrap=True)
    else:
        rows = ((row["name"], row["title"]) for row in found)
        print_table("", ("name", "title"), rows, empty="It has no pages beside its description.")


def organiser_questions(
    competition: Slug,
    *,
    only_open: Annotated[bool, typer.Option("--open", help="Only those without an answer.")] = False,
    page: Annotated[int, typer.Option("--page", min=1)] = 1,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List all questions with who asked."""
    with connected(url) as client:
        found = client.get(f"/competitions/{competition}/all-questions", open=only_open, page=page)
    if as_json:
        print_json(found)
        return
    rows = (
        (row["id"][:8], row["asked_by"], row["question"], row["answer"] or None, local_time(row["created_at"]))
        for row in found["questions"]
    )
    print_table("", ("id", "who", "question", "answer", "asked"), rows, empty="There is no question.")


def answer(
    competition: Slug,
    question: Annotated[str, typer.Argument(help="A question's id, or its first characters.", metavar="ID")],
    *,
    text: Annotated[str, typer.Option("--text", help="The answer, Markdown.")],
    to_all: Annotated[bool, typer.Option("--to-all", help="Everybody reads it, not who asked.")] = False,
    shown_as: Annotated[str, typer.Option("--as", help="For all: the question in other words.")] = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Answer a question, or answer it otherwise. Those who may read it are written to."""
    with connected(url) as client:
        if len(question) != 16:
            listed = client.get(f"/competitions/{competition}/all-questions")["questions"]
            known = [row["id"] for row in listed if row["id"].startswith(question)]
            question = the_only_match(question, known, what=f"questions of {competition}")
        body = {"answer": text, "to_all": to_all, "question": shown_as}
        found = client.put(f"/competitions/{competition}/questions/{question}/answer", body)
    if as_json:
        print_json(found)
        return
    console.print("Answered to all." if to_all else "Answered to whoever asked.")


def _whose(row: dict[str, object]) -> str:
    return ", ".join(word for word, is_so in (("yours", row["is_mine"]), ("to all", row["is_public"])) if is_so)
