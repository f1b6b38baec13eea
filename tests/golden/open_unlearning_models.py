"""Evaluate stored models and compare with open-unlearning's own values.

`python -m tests.golden.open_unlearning_models DIR`.

DIR holds `models/FAMILY_{full,retain,...}`, `data/`, `golden.json` (task: metric: value) and, if present, `wmdp.json`.
A task's name is a folder of `models/`, with `@bf16`, `@padtoken`, `@probmean` or `@reppen1.1` for a changed setting.
Prints the largest difference of every task, and every value that differs by more than the tolerance; exit status 1
then.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from lethe.huggingface.results import TaskResult
from lethe.huggingface.task import LoadSettings, evaluate_folders, read_task

TOLERANCE = 1e-5
# Attacks count pairs, of which rounding may swap some; the truth ratio under another name; bfloat16 is rounding itself.
COUNTED = ("mia_", "privleak", "forget_quality")
TOLERANCE_BFLOAT16 = 0.02
NOT_COMPARABLE = {"mia_reference"}  # of a retain model: it would be compared with itself


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", action="append", help="only these")
    parser.add_argument("--json", type=Path, help="write task: metric: difference")
    chosen = parser.parse_args()
    golden = json.loads((chosen.folder / "golden.json").read_text())
    differences = {}
    for task in chosen.task or sorted(golden):
        if not (chosen.folder / "models" / task.partition("@")[0]).is_dir():
            print(f"{task}: its model is not there")
            continue
        differences[task] = _compare(chosen.folder, task, golden[task])
    if chosen.task is None and (chosen.folder / "wmdp.json").exists():
        differences |= _compare_choices(chosen.folder, json.loads((chosen.folder / "wmdp.json").read_text()))
    if chosen.json:
        chosen.json.write_text(json.dumps(differences, indent=1))
    sys.exit(
        any(differences[task][name] > _tolerance(task, name) for task in differences for name in differences[task])
    )


def _compare(folder: Path, task: str, golden: dict[str, float | None]) -> dict[str, float]:
    found = _evaluate(folder, task)
    values: dict[str, float | None] = dict(found.values())
    if task.endswith("@probmean"):
        values = {"forget_truth_ratio": values["forget_truth_ratio_prob_mean"]}
    differences = {
        name: abs((values[name] or 0.0) - wanted)
        for name, wanted in golden.items()
        if wanted is not None and name in values and not (task.endswith("_retain") and name in NOT_COMPARABLE)
    }
    largest = max(differences, key=lambda name: differences[name])
    print(f"{task}: {len(differences)} values, largest difference {differences[largest]:.2g} ({largest})", flush=True)
    for name, difference in differences.items():
        if difference > _tolerance(task, name):
            print(f"  {name}: {values[name]} in place of {golden[name]}")
    return differences


def _compare_choices(folder: Path, golden: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the differences from lm-eval's accuracy on `data/wmdp*`, by model."""
    found = {}
    task = read_task("wmdp", folder / "data", LoadSettings())
    for name in (name for name in golden if (folder / "models" / name).is_dir()):
        values = evaluate_folders([folder / "models" / name], task, settings=LoadSettings(dtype="float32")).mean()
        found[f"{name} wmdp"] = {
            each: abs((values[each] or 0.0) - golden[name][each]) for each in ("acc", "acc_stderr")
        }
        print(f"{name} wmdp: largest difference {max(found[f'{name} wmdp'].values()):.2g}", flush=True)
    return found


def _evaluate(folder: Path, task: str) -> TaskResult:
    name, _, change = task.partition("@")
    family = name.partition("_")[0]
    settings = LoadSettings(dtype="bfloat16" if change == "bf16" else "float32")
    models = folder / "models"
    retain = models / f"{family}_retain" if not name.endswith("_retain") else None
    with tempfile.TemporaryDirectory() as scratch:
        changed = _changed_copy(models / name, Path(scratch) / name, change)
        read = read_task("muse" if family == "muse" else "tofu", folder / "data", settings)
        return evaluate_folders([changed], read, settings=settings, retain=retain).results[0]


def _changed_copy(model: Path, copy: Path, change: str) -> Path:
    shutil.copytree(model, copy, copy_function=shutil.copyfile)
    if change == "padtoken":
        _set(copy / "tokenizer_config.json", pad_token="<|pad|>")
    elif change.startswith("reppen"):
        _set(copy / "generation_config.json", repetition_penalty=float(change.removeprefix("reppen")))
    return copy


def _set(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def _tolerance(task: str, name: str) -> float:
    if task.endswith("@bf16"):
        return TOLERANCE_BFLOAT16
    return 0.01 if name.startswith(COUNTED) else TOLERANCE


if __name__ == "__main__":
    main()
