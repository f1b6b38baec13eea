"""What the comparison with the authors' programs found, as docs/methods/conformance.md."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
RESULTS = GOLDEN / "trajectories" / "results.json"
FORMULAS = GOLDEN / "formulas.json"
FORMULAS_TEST = "tests/lethe/methods/test_programs_written_out.py"
TEXT_TEST = "tests/lethe/methods/text/test_published_trainers.py"
COMMITS = {
    "meghdadk/SCRUB": "98ffb11",
    "if-loops/selective-synaptic-dampening": "cdfdc0e",
    "if-loops/towards_poison_unlearning": "5b5e83f",
    "shash42/Evaluating-Inexact-Unlearning": "a45fe02",
    "YoungheeGo/MachineUnlearning": "979d3d8",
    "xcadet/deepunlearn": "6830ff6",
    "OPTML-Group/Unlearn-Saliency": "a6e89fd",
    "vikram2000b/bad-teaching-unlearning": "f1aa988",
    "OcraM17/DUCK": "0961e3a",
    "Graph-COM/Langevin_unlearning": "fea22c5",
    "AdityaGolatkar/SelectiveForgetting": "6bf8e6f",
}
Row = Mapping[str, Any]


@cache
def results() -> tuple[Row, ...]:
    rows = [*json.loads(RESULTS.read_text("utf-8")), *json.loads(FORMULAS.read_text("utf-8"))]
    return tuple(sorted(rows, key=lambda row: row["method"]))


def _source(row: Row) -> str:
    """Return the program of a row: repository, commit and files."""
    repository, _, files = row["source"].partition(" ")
    return f"{repository} at {COMMITS[repository]}, {files}"


def table() -> str:
    """Return docs/methods/conformance.md."""
    rows = [
        f"| `{row['method']}` | {_source(row)} | {row['setting']} | {row['steps'] or 'the end'} |"
        f" {row['largest']:.0e} |"
        for row in results()
    ]
    agree = sum(row["first"] is None for row in results())
    written_out = [row["setting"] for row in json.loads(FORMULAS.read_text("utf-8"))]
    return "\n".join(
        [
            "# Conformance",
            "",
            "For researchers who must know whether a method is its authors': with which program each is compared,",
            "and how closely it agrees.",
            "",
            "Each method is run beside the program of its authors: the same weights, batches and random draws, in",
            "float64, on a network of two convolutions with BatchNorm. Compared are the weights after every optimizer",
            f"step and, at the end, BatchNorm's statistics. {agree} of {len(results())} settings agree within 1e-9.",
            "Methods without steps are compared at the end. `python -m tests.golden.trajectories DIR` compares a",
            "folder of trajectories, and with `--record` writes what this page is made from.",
            f"The settings {', '.join(written_out)} are compared with the program's formulas, which",
            f"`{FORMULAS_TEST}` writes out: these programs train linear models, or are notebooks.",
            "",
            "| method | program | setting | steps compared | largest difference |",
            "|---|---|---|---:|---:|",
            *rows,
            "",
            f"`{TEXT_TEST}` compares the methods for language models, all but `idk`, with open-unlearning's",
            "trainers, step by step: two epochs give the same weights within 1e-9 in float64.",
            "",
        ]
    )
