"""Which statements of a notebook are the competition's own by what they do, or by what they call does."""

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lethe.submission.notebook_statements import Import, Statement, Statements
from lethe.submission.own_loop import (
    Reason,
    find_calls,
    flagged_definitions,
    imported_libraries,
    is_gpu_guard,
    reason_of_calls,
    saves_in_a_loop,
)
from lethe.submission.statement_changes import executed_nodes
from lethe.submission.statement_reads import Definition

KIT = "kit"  # the starter kit's package


@dataclass(frozen=True)
class OwnStatements:
    """reasons: by place, why a statement is the competition's own. aliases: the function's names.

    runners: the aliases, and the functions and classes that call one of them.
    """

    reasons: dict[int, Reason]
    aliases: frozenset[str]
    runners: frozenset[str]


def own_statements(statements: Statements, function: str) -> OwnStatements:
    """Return the statements that are the competition's own by what they do themselves."""
    aliases = _aliases(statements, function)
    flagged = _flagged(statements, function, aliases)
    return OwnStatements(
        {
            number: reason
            for number, statement in enumerate(statements.all)
            if not isinstance(statement.node, Definition | Import) and (reason := _reason(statement, flagged, function))
        },
        aliases,
        frozenset(name for name, reason in flagged.items() if reason is Reason.RUNS),
    )


def _flagged(statements: Statements, function: str, aliases: Collection[str]) -> dict[str, Reason]:
    """Return the functions and classes, and other names for the function, that do what is the competition's own."""
    marked: dict[str, Reason] = {}
    for statement in statements.all:
        if isinstance(statement.node, Import) and KIT in imported_libraries(statement.node):
            marked |= dict.fromkeys(statement.binds, Reason.KIT)
    for name, found in statements.definitions.items():
        nodes = [node for definition in found for node in ast.walk(definition)]
        reason = reason_of_calls(find_calls(nodes))
        if saves_in_a_loop(nodes):
            marked[name] = Reason.SAVES
        elif reason in (Reason.READS, Reason.LOADS):
            marked[name] = reason
    marked.pop(function, None)
    by_others = flagged_definitions(statements.later, marked)
    return by_others | flagged_definitions(statements.later, dict.fromkeys(aliases, Reason.RUNS))


def _aliases(statements: Statements, function: str) -> frozenset[str]:
    found = {function}
    for statement in statements.all:
        if isinstance(statement.node, ast.Assign) and statement.reads & found and not _calls(statement, found):
            found |= statement.binds
    return frozenset(found)


def _calls(statement: Statement, names: Collection[str]) -> bool:
    return any(name.partition(".")[0] in names for name in statement.calls.names)


def _reason(statement: Statement, flagged: Mapping[str, Reason], function: str) -> Reason | None:
    called = {name.partition(".")[0] for name in statement.calls.names}
    found = sorted(flagged[name] for name in called if name in flagged)
    # What runs the function may also be handed over to be called: `pool.map(run_one, range(512))`.
    handed = any(flagged.get(name) is Reason.RUNS for name in statement.reads - {function} - statement.binds)
    if Reason.RUNS in found or (handed and called):
        return Reason.RUNS
    if saves_in_a_loop(executed_nodes(statement.node)):
        return Reason.SAVES
    if is_gpu_guard(statement.node):
        return Reason.GUARDS
    return reason_of_calls(statement.calls) or next(iter(found), None)
