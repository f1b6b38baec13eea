"""Of a notebook, everything but the competition's own loop, so that its function sees what it would see there.

A run calls the function itself, with its own loaders and original model. A statement of the top level is left out only
if it is recognised as the competition's own, or uses a value of one that is, and only if no value that the function
or a kept statement reads depends on it. Where the loop itself sets such a value, the notebook is refused.
What is left out is blanked, line by line, so that line numbers stay what they are. Nothing is run here.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TypeVar

from lethe.submission.blanked_lines import without_statements
from lethe.submission.hidden_reads import finds_by_name, reads_files, writes_files
from lethe.submission.left_out import LeftOut
from lethe.submission.loop_arguments import Bound, bound_arguments
from lethe.submission.loop_work import LoopIsNeeded, calls_of, check_loop_work, loop_scopes
from lethe.submission.notebook_statements import Import, Statement, Statements, read_statements
from lethe.submission.own_loop import QUIET_LIBRARIES, SAVE, Reason, flagged_definitions, imported_libraries
from lethe.submission.own_statements import own_statements
from lethe.submission.possible_changes import PossibleChanges
from lethe.submission.statement_changes import ANYTHING, executed_nodes
from lethe.submission.statement_reads import Definition

PASSES = 5  # each keeps more than the one before; a notebook settles after two or three
MOST_STEPS = 500_000  # from functions that change a value to the statements that call them
MOST_NAMED = 3  # names in one reason
NAME_LENGTH = 40
MOST_LISTED = 200  # of what is left out
Key = TypeVar("Key")
DYNAMIC = frozenset({"eval", "exec", "globals", "locals", "vars", "get_ipython", "__import__"})


@dataclass(frozen=True)
class Sliced:
    """The cells with what is left out blanked, a list of it, and what its author should know."""

    cells: list[str]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = ()


def without_own_loop(cells: Sequence[str], function: str, *, is_accepted: bool = False) -> Sliced:
    """Return the cells without the competition's own loop. All must be Python. Raises LoopIsNeeded.

    is_accepted: the notebook was taken by an earlier version, which did not look at its loop: nothing is refused, and
    no argument of the loop is bound.
    """
    statements = read_statements(cells, function)
    slicing = _Slicing(statements, function, is_accepted=is_accepted)
    reasons = slicing.left_out()
    dropped = [statements.all[number] for number in sorted(reasons)]
    kept = [statement for number, statement in enumerate(statements.all) if number not in reasons]
    found = [LeftOut(s.cell, *s.lines, str(reasons[n])) for n, s in zip(sorted(reasons), dropped, strict=True)]
    sliced = Sliced(without_statements(cells, dropped, kept), _joined(found))
    return slicing.with_arguments(sliced)


def _joined(found: Sequence[LeftOut]) -> tuple[LeftOut, ...]:
    """Return neighbours of one reason as one; of very many, the first."""
    joined: list[LeftOut] = []
    for part in found:
        before = joined[-1] if joined else None
        if (
            before
            and (before.cell, before.reason) == (part.cell, part.reason)
            and part.first_line <= before.last_line + 2
        ):
            joined[-1] = replace(before, last_line=part.last_line)
        else:
            joined.append(part)
    return tuple(joined[:MOST_LISTED])


class _Slicing:
    """Decides which statements are left out. Statements are named by their place in the order in which they run."""

    def __init__(self, statements: Statements, function: str, *, is_accepted: bool) -> None:
        self._statements, self._function, self._is_accepted = statements, function, is_accepted
        own = own_statements(statements, function)
        self._own, self._runners, self._aliases = own.reasons, own.runners, own.aliases
        runs = [number for number, reason in self._own.items() if reason is Reason.RUNS]
        self._called_at = self._find_loop(runs)
        self._bound = self._look_at_the_loop()
        self._users = _users(statements.later)
        numbered = list(enumerate(statements.all))
        self._binders = _users({number: found.binds for number, found in numbered})
        self._changes = _users(
            {number: frozenset(map(statements.groups.of, found.changes)) for number, found in numbered}
        )
        self._changed_in = _users(statements.changed_inside)
        self._mentions = _users({number: found.reads for number, found in numbered})
        self._of_the_loop = self._following(runs)
        self._possible = possible = PossibleChanges(statements, self._of_the_loop)
        self._carriers = _users(possible.later)
        self._may_change = _users(
            {
                number: frozenset(map(possible.groups.of, possible.names(found)))
                for number, found in numbered
                if number not in self._of_the_loop and not isinstance(found.node, Definition | Import)
            }
        )
        self._may_change_in = _users(possible.changed_inside)
        inside = possible.of_function(function)
        self._function_reads_files = reads_files(inside)
        self._function_finds_by_name = finds_by_name(inside)

    def left_out(self) -> dict[int, str]:
        """Return the places of what is left out, and why."""
        kept = self._noticed(self._dropped(set()))
        dropped = self._dropped(kept)
        for _ in range(PASSES):
            if not (more := self._needed(dropped)):
                break
            kept |= more
            dropped = {n: why for n, why in self._dropped(kept).items() if n in dropped and n not in more}
        else:
            dropped = {n: why for n, why in dropped.items() if n not in self._needed(dropped)}
        later = range(self._called_at + 1, len(self._statements.all))
        dropped |= {number: Reason.AFTER.value for number in later if number not in dropped}
        return dropped | self._unused_imports(dropped)

    def _find_loop(self, runs: Sequence[int]) -> int:
        """Return the place of the last statement that runs the function and saves models, or the notebook's end.

        What the function sees is what its globals are there: without such a statement, what they are at the end.
        """
        end = len(self._statements.all)
        savers = [n for n in runs if self._saves(self._statements.all[n])]
        bound = [n for n, found in enumerate(self._statements.all) if self._function in found.binds]
        return savers[-1] if savers and all(n < savers[-1] for n in bound) else end

    def _look_at_the_loop(self) -> Bound:
        """Return what the loop passes to the function. Raises LoopIsNeeded if it does more to models than that."""
        if self._is_accepted or self._called_at >= len(self._statements.all):
            return Bound()
        loop = self._statements.all[self._called_at]
        scopes = loop_scopes(loop, self._statements, aliases=self._aliases, runners=self._runners)
        calls: list[ast.Call] = []
        for scope in scopes:
            check_loop_work(scope, self._statements, function=self._function, aliases=self._aliases, cell=loop.cell)
            calls += calls_of(ast.walk(scope), self._aliases)
        return bound_arguments(
            calls,
            self._statements.definitions.get(self._function, ()),
            function=self._function,
            scopes=scopes,
            cell=loop.cell,
        )

    def with_arguments(self, sliced: Sliced) -> Sliced:
        """Return the cells with the arguments bound, in the loop's first line, that the loop passes to the function."""
        if not self._bound.text:
            return sliced
        loop = self._statements.all[self._called_at]
        lines = sliced.cells[loop.cell - 1].split("\n")
        first = loop.lines[0] - 1
        lines[first] = "; ".join(part for part in (lines[first].rstrip("; "), self._bound.line(self._function)) if part)
        cells = [*sliced.cells]
        cells[loop.cell - 1] = "\n".join(lines)
        note = f"{self._function} is called with {self._bound.text}, as in the notebook's loop"
        return replace(sliced, cells=cells, notes=(note,))

    def _saves(self, statement: Statement) -> bool:
        if SAVE in statement.calls.names:
            return True
        called = flagged_definitions(self._statements.later, dict.fromkeys(self._statements.savers, Reason.SAVES))
        return any(name in called for name in statement.reads)

    def _following(self, runs: Sequence[int]) -> frozenset[int]:
        """Return the loop, and what uses values of it: what is left out there is not looked at in doubt."""
        found, missing = set(runs), set[str]()
        for number, statement in enumerate(self._statements.all):
            if number in found or (statement.reads & missing and not isinstance(statement.node, Definition | Import)):
                found.add(number)
                missing |= statement.binds | (statement.changes - self._statements.modules)
        return frozenset(found)

    def _noticed(self, dropped: Mapping[int, str]) -> set[int]:
        """Return what changes more than the notebook's names: settings of libraries; all where names cannot be told."""
        return {
            number
            for number in self._doubtful(dropped)
            if self._function_finds_by_name or self._possible.sets_more_than_names(self._statements.all[number])
        }

    def _doubtful(self, dropped: Iterable[int]) -> list[int]:
        """Return what is left out only because of the competition's data."""
        return [
            number
            for number in dropped
            if number < self._called_at
            and number not in self._of_the_loop
            and self._own.get(number) in (None, Reason.READS, Reason.LOADS)
        ]

    def _written(self, dropped: Mapping[int, str], needed: set[int]) -> set[int]:
        """Return what writes files, if the function or a statement that is kept reads any."""
        kept = [n for n, found in enumerate(self._statements.all) if n not in dropped or n in needed]
        nodes = (self._statements.all[number].node for number in kept)
        if not self._function_reads_files and not any(
            reads_files(executed_nodes(node)) for node in nodes if not isinstance(node, Definition | Import)
        ):
            return set()
        return {n for n in self._doubtful(dropped) if writes_files(executed_nodes(self._statements.all[n].node))}

    def _dropped(self, kept: set[int]) -> dict[int, str]:
        """Return the competition's own statements and those that use what they make, but for those to keep."""
        dropped: dict[int, str] = {}
        missing: set[str] = set()
        for number, statement in enumerate(self._statements.all):
            if number in kept or isinstance(statement.node, Import):
                continue
            if number in self._own:
                dropped[number] = self._own[number].format(function=self._function)
            elif used := sorted(statement.reads & missing):
                shown = ", ".join(name[:NAME_LENGTH] for name in used[:MOST_NAMED]) + (
                    ", ..." if len(used) > MOST_NAMED else ""
                )
                dropped[number] = Reason.FOLLOWS.format(names=shown)
            else:
                continue
            self._mark(missing, statement.binds | (statement.changes - self._statements.modules))
        return dropped

    def _mark(self, missing: set[str], names: frozenset[str]) -> None:
        """Add names, and the functions and classes whose bodies read them."""
        waiting = [name for name in names if name not in missing]
        while waiting:
            name = waiting.pop()
            if name not in missing:
                missing.add(name)
                waiting += (user for user in self._users.get(name, ()) if user not in missing)

    def _needed(self, dropped: Mapping[int, str]) -> set[int]:
        """Return which of these must be kept after all. Raises LoopIsNeeded if one of them is the loop.

        A name is needed as it is before some place; places go down, so each name is looked at once.
        """
        names = {self._function, *self._bound.reads, *self._set_by_loops()}
        waiting: list[tuple[int, str]] = [(-self._called_at - 1, name) for name in names]
        later = self._possible.later
        for number, statement in enumerate(self._statements.all):
            if number not in dropped and not isinstance(statement.node, Import):
                waiting += ((-number, name) for name in statement.reads)
        waiting.sort()
        needed, seen, budget = set[int](), set[str](), [MOST_STEPS]
        while waiting:
            place, name = heappop(waiting)
            if name in seen:
                continue
            seen.add(name)
            for reader in later.get(name, ()):
                heappush(waiting, (place, reader))
            for number in self._makers(name, budget):
                if number < -place and number in dropped and number not in needed:
                    if self._is_the_loop(number):
                        self._refuse_loop(number, name)
                        continue
                    needed.add(number)
                    for read in self._statements.all[number].reads:
                        heappush(waiting, (-number, read))
        return needed | self._written(dropped, needed)

    def _set_by_loops(self) -> set[str]:
        """Return what loops set or change, where the function may find it by its name; not what they call it with."""
        if not self._function_finds_by_name:
            return set()
        names = set[str]()
        for number in (n for n, reason in self._own.items() if reason is Reason.RUNS and n < self._called_at):
            found = self._statements.all[number]
            calls = calls_of(executed_nodes(found.node), self._runners)
            given = {node.id for call in calls for node in ast.walk(call) if isinstance(node, ast.Name)}
            rebound = {name for name in found.binds if len(self._binders[name]) > 1}
            inside = (self._statements.changed_inside.get(read, frozenset()) for read in found.reads - self._runners)
            names |= ((found.changes | rebound) - given).union(*inside) - self._statements.modules
        return names

    def _makers(self, name: str, budget: list[int]) -> Iterator[int]:
        """Yield the places of what binds or changes a name, by itself or through the functions that it calls.

        In doubt what merely follows from the competition's data counts as well; the loop only if it is certain.
        """
        yield from self._binders.get(name, ())
        for changed in (self._statements.groups.of(name), ANYTHING):
            yield from self._changes.get(changed, ())
        for changed in (self._possible.groups.of(name), ANYTHING):
            yield from self._may_change.get(changed, ())
        yield from self._callers(name, self._changed_in, self._users, budget)
        inside = self._callers(name, self._may_change_in, self._carriers, budget)
        yield from (number for number in inside if number not in self._of_the_loop)

    def _callers(
        self, name: str, changed_in: Mapping[str, list[str]], users: Mapping[str, list[str]], budget: list[int]
    ) -> Iterator[int]:
        """Yield the places of statements that mention what changes a name when it is called."""
        waiting = [*changed_in.get(name, ()), *changed_in.get(ANYTHING, ())]
        seen = {self._function}
        while waiting and budget[0] > 0:
            user = waiting.pop()
            budget[0] -= 1
            if user not in seen:
                seen.add(user)
                waiting += users.get(user, ())
                yield from self._mentions.get(user, ())

    def _is_the_loop(self, number: int) -> bool:
        called = {call.partition(".")[0] for call in self._statements.all[number].calls.names}
        return self._own.get(number) is Reason.RUNS and bool(called & self._runners)  # else it is only handed over

    def _refuse_loop(self, number: int, name: str) -> None:
        if self._is_accepted:
            return
        statement = self._statements.all[number]
        place = LeftOut(statement.cell, *statement.lines, f"sets or changes {name!r}")
        raise LoopIsNeeded(
            f"the lines to {place.last_line} call {self._function}, which here each run does by itself, and also "
            f"set or change {name[:NAME_LENGTH]!r}, which {self._function} or what it uses reads; set it before them",
            place,
        )

    def _unused_imports(self, dropped: Mapping[int, str]) -> dict[int, str]:
        """Return imports that only what is left out uses, of libraries whose import changes nothing else."""
        kept = [found for number, found in enumerate(self._statements.all) if number not in dropped]
        used = {name for found in kept for name in found.reads}.union(*self._statements.later.values())
        if not dropped or used & DYNAMIC:
            return {}
        return {
            number: Reason.UNUSED.value
            for number, found in enumerate(self._statements.all)
            if isinstance(found.node, Import)
            and not found.binds & (used | {"*"})
            and QUIET_LIBRARIES.issuperset(imported_libraries(found.node))
        }


def _users(reads: Mapping[Key, frozenset[str]]) -> dict[str, list[Key]]:
    """Return who reads each name."""
    users: dict[str, list[Key]] = defaultdict(list)
    for key, names in reads.items():
        for name in names:
            users[name].append(key)
    return users
