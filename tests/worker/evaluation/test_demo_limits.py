"""The demo's limit of a run: retraining in torch does not fit, and the published methods of its board do."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lethe.competition.file import parse_competition
from lethe.competition.run_limits import limit_warnings
from lethe.competition.visibility import Visibility
from lethe.preparation.prepare import prepare_split
from sandbox.launcher import Launcher, RunRequest, RunResult, Sandbox, SandboxSpec
from server.cli.demo import ENTRANTS, Entrant, competition_file
from server.config import Settings
from worker.evaluation.run_policy import run_policy
from worker.preparation import retraining_time
from worker.preparation.retraining_time import measure_retraining_cost

pytestmark = pytest.mark.slow

DEMO = parse_competition(competition_file()).model_copy(update={"n_models": 4})


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stage")


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory, stage: Path) -> Iterator[Sandbox]:
    """Return a sandbox with the limits of the demo's runs, as preparation measured them."""
    split = tmp_path_factory.mktemp("demo") / "public"
    manifest = prepare_split(DEMO, Visibility.PUBLIC, split)
    settings = Settings(home=tmp_path_factory.mktemp("home"))
    cost = measure_retraining_cost(settings, split, DEMO, manifest.timing)
    (warning,) = limit_warnings(DEMO.limits, cost, n_models=1)
    assert "retraining from scratch fits into a run's limit" in warning  # in numpy: torch takes ten times as long
    policy = replace(run_policy(DEMO.limits, retraining=cost, threads=1), wall_time_s=120.0)
    spec = SandboxSpec(data_dir=split / "visible", stage_dir=stage, policy=policy, production=False)
    with Launcher(spec).start() as started:
        yield started


def run(sandbox: Sandbox, stage: Path, name: str, files: dict[str, str]) -> RunResult:
    folder = stage / name
    folder.mkdir()
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    return sandbox.run(RunRequest(code_dir=folder, seed=1))


def tried(sandbox: Sandbox, stage: Path, name: str, files: dict[str, str]) -> RunResult:
    """Return the run's result, after as many tries as a worker gives to a run that used up its time."""
    for number in range(3):
        result = run(sandbox, stage, f"{name}-{number}", files)
        if result.verdict.error_class != "time-limit":
            break
    return result


def test_retraining_ends_in_the_time_limit(sandbox: Sandbox, stage: Path) -> None:
    recipe = retraining_time.recipe_as_json(DEMO.training, epochs=DEMO.training.epochs)
    files = {"submission.py": retraining_time.RETRAINING, "recipe.json": recipe}
    result = run(sandbox, stage, "retraining", files)
    assert result.verdict.error_class == "time-limit", result.facts
    assert result.weights is None


@pytest.mark.parametrize("number", range(len(DEMO.report.baselines)))
def test_published_method_has_the_time_it_needs(sandbox: Sandbox, stage: Path, number: int) -> None:
    baseline = DEMO.report.baselines[number]
    result = tried(sandbox, stage, baseline.id, {"submission.py": baseline.source()})
    assert result.verdict.outcome == "weights", result.verdict


@pytest.mark.parametrize("entrant", ENTRANTS, ids=lambda entrant: entrant.file.stem)
def test_entrant_has_the_time_it_needs(sandbox: Sandbox, stage: Path, entrant: Entrant) -> None:
    result = tried(sandbox, stage, f"entrant-{entrant.file.stem}", {"submission.py": entrant.file.read_text()})
    assert result.verdict.outcome == "weights", result.verdict
