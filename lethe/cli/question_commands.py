"""`lethe questions`, `ask`, `pages`, and `lethe competition questions|answer` for organisers."""

from typing import Annotated

import typer

from lethe.cli.context import InCompetition, PublicCompetition, Server, Slug
from lethe.cli.id_prefixes import the_only_match
from lethe.cli.output import Columns, console, print_rows

Text = Annotated[str, typer.Argument(help="The question.", metavar="TEXT")]


def register_commands(app: typer.Typer) -> None:
    app.command()(questions)
    app.command()(ask)
    app.command()(pages)


def questions(server: PublicCompetition) -> None:
    """Show the questions that are answered to all, and your own."""
    found = server.client.get(f"/competitions/{server.slug}/questions")
    server.answer(found)
    columns: Columns = {"question": "question", "answer": lambda row: row["answer"] or "no answer yet", "": _whose}
    print_rows(found, columns, empty="No question is answered to all yet.")


def ask(server: InCompetition, text: Text) -> None:
    """Ask the organisers. They answer you, or all without your name."""
    found = server.client.post(f"/competitions/{server.slug}/questions", {"text": text})
    server.answer(found)
    console.print("Asked. `lethe questions` shows the answer, and you get a message.")


def pages(
    server: PublicCompetition,
    name: Annotated[str | None, typer.Argument(help="data, rules, evaluation, prizes or faq.")] = None,
) -> None:
    """Show the pages that a competition has beside its description; with a name, one of them."""
    base = f"/competitions/{server.slug}/pages"
    found = server.client.get(f"{base}/{name}" if name else base)
    server.answer(found)
    if name:
        console.print(found["text"], highlight=False, markup=False, soft_wrap=True)
    else:
        print_rows(found, {"name": "name", "title": "title"}, empty="It has no pages beside its description.")


def organiser_questions(
    server: Server,
    competition: Slug,
    *,
    only_open: Annotated[bool, typer.Option("--open", help="Only those without an answer.")] = False,
    page: Annotated[int, typer.Option("--page", min=1)] = 1,
) -> None:
    """List all questions with who asked."""
    found = server.client.get(f"/competitions/{competition}/all-questions", open=only_open, page=page)
    server.answer(found)
    columns: Columns = {"id": lambda row: row["id"][:8], "who": "asked_by", "question": "question", "answer": "answer"}
    print_rows(found["questions"], columns | {"asked": "created_at"}, empty="There is no question.")


def answer(
    server: Server,
    competition: Slug,
    question: Annotated[str, typer.Argument(help="A question's id, or its first characters.", metavar="ID")],
    *,
    text: Annotated[str, typer.Option("--text", help="The answer, Markdown.")],
    to_all: Annotated[bool, typer.Option("--to-all", help="Everybody reads it, not who asked.")] = False,
    shown_as: Annotated[str, typer.Option("--as", help="For all: the question in other words.")] = "",
) -> None:
    """Answer a question, or answer it otherwise. Those who may read it are written to."""
    if len(question) != 16:
        listed = server.client.get(f"/competitions/{competition}/all-questions")["questions"]
        known = [row["id"] for row in listed if row["id"].startswith(question)]
        question = the_only_match(question, known, what=f"questions of {competition}")
    body = {"answer": text, "to_all": to_all, "question": shown_as}
    found = server.client.put(f"/competitions/{competition}/questions/{question}/answer", body)
    server.answer(found)
    console.print("Answered to all." if to_all else "Answered to whoever asked.")


def _whose(row: dict[str, object]) -> str:
    return ", ".join(word for word, is_so in (("yours", row["is_mine"]), ("to all", row["is_public"])) if is_so)
