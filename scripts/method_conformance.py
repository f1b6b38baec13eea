"""What the comparison with the authors' programs found, for the methods' pages and for docs/methods/conformance.md."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from lethe.methods.catalogue import IMAGES, MethodInfo

RESULTS = Path(__file__).parents[1] / "tests" / "golden" / "trajectories" / "results.json"
TEXT_TEST = "tests/lethe/methods/text/test_published_trainers.py"
NOT_IN_TEXT_TEST = ("idk",)
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
}
Row = Mapping[str, Any]


@cache
def results() -> tuple[Row, ...]:
    return tuple(json.loads(RESULTS.read_text("utf-8")))


def _source(row: Row) -> str:
    """Return the program of a row: repository, commit and files."""
    repository, _, files = row["source"].partition(" ")
    return f"{repository} at {COMMITS[repository]}, {files}"


def differences(method: MethodInfo) -> list[str]:
    """Return the section of a page that compares the method with its authors' programs."""
    rows = [row for row in results() if row["method"] == method.id]
    head = ["## Differences from the authors' programs", ""]
    if method.task != IMAGES:
        return [*head, _of_text(method), "", *_presets(method)]
    if not rows:
        return [*head, "No public program of its authors is known: nothing was compared.", ""]
    with_preset = sorted({row["preset"] for row in rows if row["preset"]})
    how = "With the constants of the setting"
    if with_preset:
        how += f" and of the preset {' or '.join(f'`{name}`' for name in with_preset)}"
    lines = [
        f"{how}, and the program's batches and draws,",
        "the weights after every optimizer step are the program's:",
        "",
        "| program | settings | steps | largest difference |",
        "|---|---:|---:|---:|",
    ]
    for source in dict.fromkeys(_source(row) for row in rows):
        of_source = [row for row in rows if _source(row) == source]
        steps, largest = sum(row["steps"] for row in of_source), max(row["largest"] for row in of_source)
        lines.append(f"| {source} | {len(of_source)} | {steps or 'the end'} | {largest:.0e} |")
    return [*head, *lines, "", *_presets(method)]


def _of_text(method: MethodInfo) -> str:
    if method.id in NOT_IN_TEXT_TEST:
        return "The program that it follows is not compared step by step."
    preset = " with the preset `open-unlearning`" if method.presets else ""
    return (
        f"`{TEXT_TEST}` writes out the trainer of open-unlearning and the loop of transformers; "
        f"two epochs of it give the same weights within 1e-9 in float64{preset}."
    )


def _presets(method: MethodInfo) -> list[str]:
    """Return the constants of the authors' experiments that are not the file's own."""
    if not method.presets:
        return []
    own = {constant.name: constant.value for constant in method.constants}
    names = [
        name for name in own if any(preset.get(name, own[name]) != own[name] for preset in method.presets.values())
    ]
    titles = " | ".join(f"`{preset}`" for preset in method.presets)
    rows = [
        f"| `{name}` | `{own[name]!r}` | {' | '.join(_cell(preset, name, own) for preset in method.presets.values())} |"
        for name in names
    ]
    return [
        "`--set preset=NAME` takes the constants of one of the authors' experiments; an empty cell is the default.",
        "",
        f"| constant | default | {titles} |",
        f"|---|---|{'---|' * len(method.presets)}",
        *rows,
        "",
    ]


def _cell(preset: Mapping[str, Any], name: str, own: Mapping[str, Any]) -> str:
    return f"`{preset[name]!r}`" if name in preset and preset[name] != own[name] else ""


def table() -> str:
    """Return docs/methods/conformance.md."""
    rows = [
        f"| [{row['method']}]({row['method']}.md) | {_source(row)} | {row['setting']} | {row['steps'] or 'the end'} |"
        f" {row['largest']:.0e} |"
        for row in results()
    ]
    agree = sum(row["first"] is None for row in results())
    return "\n".join(
        [
            "# Conformance",
            "",
            "Each method is run beside the program of its authors: the same weights, batches and random draws, in",
            "float64, on a network of two convolutions with BatchNorm. Compared are the weights after every optimizer",
            f"step and, at the end, BatchNorm's statistics. {agree} of {len(results())} settings agree within 1e-9.",
            "Methods without steps are compared at the end. `python -m tests.golden.trajectories DIR` compares a",
            "folder of trajectories, and with `--record` writes what this page is made from.",
            "",
            "| method | program | setting | steps compared | largest difference |",
            "|---|---|---|---:|---:|",
            *rows,
            "",
            f"Methods for language models are compared with open-unlearning's trainers by `{TEXT_TEST}`.",
            "",
        ]
    )
