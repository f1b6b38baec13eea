"""The constants that `[tune]` chose: which method runs in a cell, and what its row says of the search. No torch."""

from dataclasses import replace
from pathlib import Path

from lethe.benchmark.plan import CellPlan, MethodPlan, Plan, content_key
from lethe.benchmark.store import BenchmarkFolder, Json
from lethe.methods.rendering import set_constants
from lethe.tuning.study import Study

TUNED, UNTUNED, NOTHING_TO_TUNE = "tuned", "untuned", "nothing to tune"


def study_file(plan: Plan, folder: BenchmarkFolder, search: CellPlan, method: MethodPlan) -> Path:
    """Return where a method's search on a split is kept: under a key of its text and of what the search gets."""
    tune = plan.file.tune.model_dump(mode="json", exclude={"searches"}) if plan.file.tune else {}
    key = content_key([method.key, list(method.fixed), tune])
    return folder.cell_dir(search) / "studies" / f"{key}.json"


def finished_study(plan: Plan, folder: BenchmarkFolder, search: CellPlan, method: MethodPlan) -> Study | None:
    """Return a method's search on a split, None while it has not ended."""
    path = study_file(plan, folder, search, method)
    study = Study.read(path) if path.is_file() else None
    return study if study is not None and study.ended else None


def settled_method(plan: Plan, folder: BenchmarkFolder, cell: CellPlan, method: MethodPlan) -> MethodPlan | None:
    """Return the method with the constants that it has in this cell; None while they are searched.

    Where every trial failed, the constants are the file's own.
    """
    if not method.searched:
        return method
    study = finished_study(plan, folder, plan.searches[cell.key], method)
    if study is None:
        return None
    if study.best is None:
        return method
    settings = study.best.settings
    files = {name: set_constants(text, settings, owner=method.label) for name, text in method.files.items()}
    return replace(method, files=files, key=content_key(files), constants={**method.constants, **settings})


def settled_methods(plan: Plan, folder: BenchmarkFolder, cell: CellPlan) -> list[MethodPlan]:
    """Return the methods whose constants in this cell are known."""
    found = (settled_method(plan, folder, cell, method) for method in plan.methods)
    return [method for method in found if method is not None]


def tuning_facts(plan: Plan, folder: BenchmarkFolder, cell: CellPlan, method: MethodPlan) -> Json:
    """Return what a row says of its constants: `state`, and of a search its cost, its choice and the fresh scores."""
    if not method.searched:
        return {"state": UNTUNED if method.has_ranges else NOTHING_TO_TUNE}
    study = finished_study(plan, folder, plan.searches[cell.key], method)
    if study is None or study.best is None:
        return {"state": UNTUNED, "reason": "every trial failed" if study else "not searched yet"}
    own = study.trials[0].fresh
    return {
        "state": TUNED,
        "settings": dict(study.best.settings),
        "objective": study.question.objective,
        "trials": len(study.trials),
        "failed_trials": sum(bool(trial.failure) for trial in study.trials),
        "chosen_trial": study.chosen,
        "work_epochs": study.work_epochs,
        "cpu_time_s": study.cpu_time_s,
        "fresh": None if study.best.fresh is None else study.best.fresh.value,
        "own_fresh": None if own is None else own.value,
    }
