"""One-line faults in the rules that a competition stands on, and whether the tests notice each.

    python -m benchmarks.suite.mutations [--count 50] [--seed 1] [--rule quota ...]

The same seed draws the same faults; the named faults of a rule are always among them. Each is put into a copy of the
commit that is checked out, and the tests of its rule run until one fails. Prints a line for each fault, then a summary
as JSON; ends with 1 if a fault was not noticed.
"""

import ast
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.shared import options

ROOT = Path(__file__).resolve().parents[2]
MAX_S = 1800
MAX_CONSTANT = 10  # one more than 600 seconds is not a mistake that a test should find
SKIPPED_CALLS = ("log", "warnings", "logger")  # what is only logged is not a rule


@dataclass(frozen=True)
class Rule:
    """Modules that hold one rule, and the tests that must notice a fault in them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


RULES = {
    "quota": Rule(
        ("server/submissions/quota.py", "server/submissions/upload_check.py", "server/accounts/rate_limit.py"),
        ("tests/server/submissions/test_submissions_api.py", "tests/server/accounts", "tests/server/teams"),
    ),
    "leases": Rule(
        (
            "server/evaluations/leases.py",
            "server/evaluations/claimed_shard.py",
            "server/evaluations/lease_repository.py",
            "server/db.py",
        ),
        (
            "tests/server/evaluations",
            "tests/server/workers/test_http_leases.py",
            "tests/server/competitions/test_model_shard_leases.py",
        ),
    ),
    "finals": Rule(
        ("server/finals/finals.py", "server/competitions/lifecycle.py"),
        (
            "tests/server/competitions",
            "tests/server/finals",
            "tests/server/test_sealed.py",
            "tests/server/rejudging",
            "tests/server/admin/test_moderation.py",
            "tests/server/leaderboard/test_boards.py",
        ),
    ),
    "sealed scores": Rule(
        ("server/leaderboard/boards.py", "server/leaderboard/ranking.py"),
        ("tests/server/leaderboard", "tests/server/test_sealed.py", "tests/server/finals/test_finals.py"),
    ),
    "methods": Rule(
        (
            *(f"lethe/methods/{name}.py" for name in ("common", "cf_k", "duck", "eu_k", "fcs", "fisher", "kde", "msg")),
            *(f"lethe/methods/{name}.py" for name in ("neggradplus", "prmq", "rni", "salun", "scrub", "srl", "unsir")),
        ),
        ("tests/golden/trajectories", "tests/lethe/methods"),
    ),
    "resampling": Rule(
        (
            "lethe/metrics/core/metric_evaluation.py",
            "lethe/metrics/scoring/resampling.py",
            "lethe/metrics/scoring/calibration.py",
        ),
        (
            "tests/lethe/metrics/test_metric_evaluation.py",
            "tests/lethe/metrics/scoring/test_resampling.py",
            "tests/lethe/metrics/scoring/test_calibration.py",
        ),
    ),
    "method ranking": Rule(
        ("lethe/metrics/benchmark/rankings.py", "server/leaderboard/ranking.py"),
        (
            "tests/lethe/metrics/test_rankings.py",
            "tests/server/leaderboard/test_ranking.py",
        ),
    ),
    "tuning": Rule(("lethe/tuning/trial_runs.py", "lethe/tuning/study.py"), ("tests/lethe/tuning",)),
    "attacks": Rule(
        ("lethe/metrics/scoring/epsilon.py", "lethe/metrics/scoring/arrays.py", "lethe/metrics/scoring/score.py"),
        ("tests/lethe/metrics/scoring",),
    ),
}


@dataclass(frozen=True)
class Fault:
    """One changed line: where, what was there, and what is there now."""

    rule: str
    module: str
    line: int
    column: int
    before: str
    after: str


NAMED = (  # rule, module, text, wrong text: mistakes that are easy to make and that no operator's change makes
    ("resampling", "lethe/metrics/scoring/resampling.py", "self.headline.std(ddof=1)", "self.headline.std(ddof=0)"),
    ("resampling", "lethe/metrics/core/metric_evaluation.py", "known.std(ddof=1)", "known.std(ddof=0)"),
    (
        "resampling",
        "lethe/metrics/scoring/calibration.py",
        "fraction = score.headline / oracle.headline",
        "fraction = min(1.0, score.headline / oracle.headline)",
    ),
    (
        "methods",
        "lethe/methods/scrub.py",
        "kl_div((student / T).log_softmax(1), target,",
        "kl_div(target.log(), (student / T).softmax(1),",
    ),
    ("methods", "lethe/methods/salun.py", "summed.add_(parameter.grad)", "summed.copy_(parameter.grad)"),
    ("methods", "lethe/methods/fcs.py", "rate = lr * (loader.batch_size or 64) / 64", "rate = lr"),
    ("tuning", "lethe/tuning/trial_runs.py", "seed=question.seed + first + there", "seed=first + there"),
)


class _Changes(ast.NodeVisitor):
    """Collects (node, changed node) of everything on one line that can be turned into a plausible mistake."""

    PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot))
    COMPARISONS: ClassVar[dict[Any, Any]] = {**dict(PAIRS), **{b: a for a, b in PAIRS}}
    ARITHMETIC: ClassVar[dict[type, Any]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}

    def __init__(self) -> None:
        self.found: list[tuple[ast.expr, ast.expr]] = []

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        if not ast.unparse(node.func).startswith(SKIPPED_CALLS):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        other = self.COMPARISONS[type(node.ops[0])]
        changed = deepcopy(node)
        changed.ops[0] = other()
        self.found.append((node, changed))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        changed = deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.found.append((node, changed))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in self.ARITHMETIC:
            changed = deepcopy(node)
            changed.op = self.ARITHMETIC[type(node.op)]()
            self.found.append((node, changed))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.Invert):
            self.found.append((node, node.operand))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.found.append((node, ast.Constant(not node.value)))
        elif isinstance(node.value, int | float) and abs(node.value) < MAX_CONSTANT:
            self.found.append((node, ast.Constant(node.value + 1)))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are left as they are."""


def faults_in(rule: str, module: str) -> Iterator[Fault]:
    """Yield every one-line fault of a module."""
    source = (ROOT / module).read_text()
    lines = source.splitlines()
    changes = _Changes()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):  # its body alone: decorators and annotations hold no rule
            for statement in function.body:
                changes.visit(statement)
    for node, changed in changes.found:
        if node.lineno == node.end_lineno and lines[node.lineno - 1].isascii():
            line = lines[node.lineno - 1]
            text = f"({ast.unparse(changed)})"
            after = line[: node.col_offset] + text + line[node.end_col_offset :]
            yield Fault(rule, module, node.lineno, node.col_offset, line.strip(), after)


def named_faults(rules: list[str]) -> list[Fault]:
    """Return the named faults of these rules. Raises ValueError for one whose text is not in one line of its module."""
    found = []
    for rule, module, text, wrong in NAMED:
        lines = (ROOT / module).read_text().splitlines()
        places = [number for number, line in enumerate(lines) if text in line]
        if len(places) != 1:
            raise ValueError(f"{module} has {text!r} in {len(places)} lines, not in one")
        line = lines[places[0]]
        after = line.replace(text, wrong)
        found.append(Fault(rule, module, places[0] + 1, line.index(text), line.strip(), after))
    return [fault for fault in found if fault.rule in rules]


def draw(count: int, seed: int, rules: list[str]) -> list[Fault]:
    """Return `count` faults: those that are named, then as many of each rule as can be, in an order of the seed."""
    dice = random.Random(seed)
    of_rules = [[fault for module in RULES[rule].modules for fault in faults_in(rule, module)] for rule in rules]
    for found in of_rules:
        dice.shuffle(found)
    drawn = [found[i] for i in range(max(map(len, of_rules))) for found in of_rules if i < len(found)]
    return [*named_faults(rules), *drawn][:count]


def is_noticed(fault: Fault, copy: Path, noticing: set[str]) -> bool:
    """Return whether a test of the fault's rule fails with it. noticing: as in `fails`."""
    path = copy / fault.module
    whole = path.read_text()
    lines = whole.split("\n")
    lines[fault.line - 1] = fault.after
    path.write_text("\n".join(lines))
    try:
        return fails(fault.rule, copy, noticing)
    finally:
        path.write_text(whole)


def fails(rule: str, copy: Path, noticing: set[str]) -> bool:
    """Return whether a test of the rule fails, never ends, or kills its process (a wrong index in compiled code).

    noticing: tests that noticed an earlier fault, which run first; one that notices this fault is added.
    """
    last_failed = copy / ".pytest_cache" / "v" / "cache" / "lastfailed"
    last_failed.parent.mkdir(parents=True, exist_ok=True)
    last_failed.write_text(json.dumps(dict.fromkeys(noticing, True)))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--failed-first", *RULES[rule].tests]
    try:
        ended = subprocess.run(command, cwd=copy, capture_output=True, timeout=MAX_S, check=False)
    except subprocess.TimeoutExpired:
        return True
    if ended.returncode > 2:
        raise RuntimeError(f"pytest ended with {ended.returncode}: {ended.stdout.decode()[-500:]}")
    noticing.update(json.loads(last_failed.read_text()))
    return ended.returncode != 0


def main() -> None:
    given = options(__doc__, count=50, seed=1, rule=[*RULES])
    drawn = draw(given.count, given.seed, given.rule)
    missed: list[Fault] = []
    noticing: dict[str, set[str]] = {rule: set() for rule in RULES}
    with tempfile.TemporaryDirectory(prefix="lethe-mutations-") as folder:
        copy = Path(folder) / "copy"
        subprocess.run(["git", "clone", "-q", "--shared", ROOT, copy], check=True)
        for rule in {fault.rule for fault in drawn}:
            if fails(rule, copy, noticing[rule]):
                raise RuntimeError(f"the tests of {rule} fail without any fault")
        for fault in drawn:
            started = time.monotonic()
            noticed = is_noticed(fault, copy, noticing[fault.rule])
            missed += [] if noticed else [fault]
            said = f"{'noticed' if noticed else 'MISSED '} {time.monotonic() - started:5.0f} s"
            print(f"{said} {fault.module}:{fault.line} {fault.before} -> {fault.after.strip()}", flush=True)
    places = [f"{fault.module}:{fault.line}:{fault.column}" for fault in missed]
    summary = {"seed": given.seed, "faults": len(drawn), "noticed": len(drawn) - len(missed)}
    print(json.dumps(summary | {"missed": places}))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
