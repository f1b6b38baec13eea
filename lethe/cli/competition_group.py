"""The groups of commands for those who run competitions: `lethe competition …`, and `lethe accounts`."""

from collections.abc import Callable

import typer

from lethe.cli import (
    admission_commands,
    analysis_commands,
    bundle_command,
    change_commands,
    list_commands,
    organiser_commands,
    overview_commands,
    proposal_command,
    question_commands,
    rejudging_commands,
)
from lethe.cli.context import Commands

COMMANDS: dict[str, Callable[..., None]] = {
    "new": proposal_command.new,
    "validate": organiser_commands.validate,
    "create": organiser_commands.create,
    "update": change_commands.update,
    "prepare": organiser_commands.prepare,
    "replace-split": change_commands.replace_split,
    "cancel-preparation": organiser_commands.cancel_preparation,
    "delete": organiser_commands.delete_draft,
    "status": organiser_commands.show_status,
    "open": organiser_commands.open_competition,
    "close": organiser_commands.close_competition,
    "decide": organiser_commands.decide,
    "reveal": organiser_commands.reveal,
    "archive": change_commands.archive,
    "extend": change_commands.extend,
    "limits": change_commands.limits,
    "announce": change_commands.announce,
    "confirm": change_commands.confirm,
    "disqualify": change_commands.disqualify,
    "restore": change_commands.restore,
    "settings": admission_commands.settings,
    "participants": admission_commands.participants,
    "admit": admission_commands.admit,
    "refuse": admission_commands.refuse,
    "links": admission_commands.links,
    "addresses": admission_commands.addresses,
    "questions": question_commands.organiser_questions,
    "answer": question_commands.answer,
    "overview": overview_commands.overview,
    "activity": overview_commands.activity,
    "people": list_commands.people,
    "submissions": list_commands.submissions,
    "analysis": analysis_commands.analysis,
    "compare": analysis_commands.compare,
    "audit": list_commands.audit,
    "table": rejudging_commands.export_table,
    "bundle": bundle_command.bundle,
}


def register_commands(app: typer.Typer) -> None:
    group = Commands(help="Make, run and watch competitions (for organisers).", no_args_is_help=True)
    for name, command in COMMANDS.items():
        group.command(name)(command)
    app.add_typer(group, name="competition")
    app.command("accounts")(list_commands.accounts)
