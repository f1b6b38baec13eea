"""The import rule, and the promises that no single module can keep: each check is shown to bite."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from server.config import Settings

ROOT = Path(__file__).parents[1]
PACKAGES = ("lethe", "server", "worker", "sandbox")
VARIABLE = re.compile(r"\bLETHE_[A-Z0-9_]+\b")
SETTINGS_PAGE = ROOT / "docs" / "operators" / "settings.md"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", command, "--no-logo", "--no-cache"],
        cwd=folder,
        env=os.environ | {"COLUMNS": "200"},  # a contract's name on one line
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said of each contract in a copy of the code with all that is forbidden: each is named by itself."""
    folder = tmp_path_factory.mktemp("broken")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in (*PACKAGES, "tests/support"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "static"))
    (folder / "tests" / "__init__.py").touch()
    for module, line in [*chain(*FORBIDDEN.values()), *(circle[:2] for circle in CIRCLES)]:
        with (folder / module).open("a") as source:
            source.write(f"\n{line}\n")
    result = lint_imports(folder)
    assert result.returncode == 1, result.stdout + result.stderr
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    ids = {contract["name"]: contract["id"] for contract in contracts}
    title = re.compile(rf"^({'|'.join(map(re.escape, ids))})\n-+\n", re.MULTILINE)
    _, *said = title.split(result.stdout)
    return {ids[name]: text for name, text in zip(said[::2], said[1::2], strict=True)}


def test_import_rule_holds() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


FORBIDDEN = {
    "lethe": [
        ("lethe/client/api.py", "import server.config"),
        ("lethe/evaluation/image_evaluation.py", "from worker import app"),
        ("lethe/networks/builders.py", "def f():\n    import sandbox.policy"),
    ],
    "server": [
        ("server/config.py", "import worker.app"),
        ("server/config.py", "import sandbox.policy"),
        ("server/cli/commands.py", "def f():\n    import torch"),
        ("server/config.py", "import lethe.evaluation.image_evaluation"),
    ],
    "light-workers": [("worker/server_tasks.py", "import lethe.evaluation.image_evaluation")],
    "torch-free": [
        ("lethe/errors.py", "import lethe.networks.builders"),
        ("lethe/metrics/scoring/score.py", "import lethe.data.files"),
    ],
    "routers": [
        ("server/api/accounts.py", "import server.accounts.account_repository"),
        ("server/api/competitions/router.py", "from server.accounts import account_repository"),
        ("server/api/rejudging.py", "from server.evaluations import queue_repository"),
        ("server/api/workers/remote_router.py", "import server.workers.worker_repository"),
        ("server/api/auth_dependencies.py", "import server.accounts.account_repository"),
        ("server/api/admin/schemas.py", "from server.admin import admin_repository"),
        ("server/prometheus/router.py", "import server.prometheus.figures_repository"),
        ("server/web/rendering.py", "import server.submissions.submission_repository"),
        ("server/web/deps.py", "from server.finals import finals_repository"),
    ],
    "sandbox": [
        ("sandbox/policy.py", "import torch"),
        ("sandbox/policy.py", "import lethe.errors"),
        ("sandbox/policy.py", "import worker"),
        ("sandbox/policy.py", "import lethe.networks.builders"),
        ("sandbox/backends/base.py", "import pydantic"),
    ],
    "guest": [
        ("lethe/runtime/data_loaders.py", "import sandbox.policy"),
        ("sandbox/guest/harness.py", "import lethe.metrics.scoring.score"),
        ("lethe/runtime/data_loaders.py", "import safetensors"),
    ],
    "lethe-layers": [
        ("lethe/metrics/core/result.py", "import lethe.competition.file"),
        ("lethe/methods/catalogue.py", "import lethe.evaluation.manifest"),
        ("lethe/competition/section.py", "import lethe.data.seeds"),
        ("lethe/benchmark/plan.py", "import lethe.reports.table"),
        ("lethe/preparation/image_task.py", "import lethe.tuning.study"),
    ],
    "server-layers": [
        ("server/audit.py", "import server.admin.moderation"),
        ("server/accounts/accounts.py", "import server.teams.team_repository"),
        ("server/parsing/tasks.py", "import server.datasets.datasets"),
        ("server/competitions/competitions.py", "from server.finals import finals"),
        ("server/evaluations/evaluations.py", "import server.disclosure.gate"),
        ("server/metric_results/metric_results.py", "import server.submission_analysis.comparison"),
        ("server/teams/teams.py", "import server.submissions.quota"),
        ("server/submissions/submissions.py", "def f():\n    import server.api.submissions.schemas"),
        ("server/rejudging/rejudgings.py", "import server.admin.moderation"),
        ("server/api/accounts.py", "import server.web.deps"),
    ],
    "worker-layers": [
        ("worker/host/backoff.py", "import worker.evaluation.replay"),
        ("worker/context.py", "import worker.evaluation.replay"),
        ("worker/evaluation/replay.py", "import worker.remote.loop"),
    ],
    "metric-families": [
        ("lethe/metrics/core/arrays.py", "import lethe.metrics.scoring.score"),
        ("lethe/metrics/attacks/likelihood_attack.py", "import lethe.metrics.membership.umia"),
        ("lethe/metrics/accuracy/trade_offs.py", "import lethe.metrics.outputs.histograms"),
    ],
    "metrics": [
        ("lethe/metrics/scoring/score.py", "import torch"),
        ("lethe/metrics/scoring/score.py", "import worker.evaluation"),
        ("lethe/metrics/scoring/score.py", "import lethe.competition.file"),
        ("lethe/metrics/scoring/score.py", "import sqlalchemy"),
    ],
}


@pytest.mark.parametrize("contract", FORBIDDEN)
def test_each_forbidden_import_is_found(broken: dict[str, str], contract: str) -> None:
    for module, line in FORBIDDEN[contract]:
        importer, imported = module.removesuffix(".py").replace("/", "."), find_imported(line)
        assert re.search(rf"\b{importer} (->|imports) {imported}\b", broken[contract]), (
            f"{line} in {module}: {broken[contract]}"
        )


CIRCLES = [  # module, what it is made to import, the package in which that closes a circle
    ("lethe/tuning/study.py", "import lethe.tuning.tuning", "lethe.tuning"),
    ("lethe/metrics/core/result.py", "import lethe.metrics.core.registry", "lethe.metrics.core"),
    ("sandbox/policy.py", "import sandbox.launcher", "sandbox"),
    ("sandbox/backends/base.py", "from sandbox.backends import zygote_link", "sandbox.backends"),
    ("server/models/account.py", "import server.models.competition", "server.models"),
    ("worker/host/worker_info.py", "def f():\n    import worker.host.backoff", "worker.host"),
]


def test_modules_that_import_each_other_are_found(broken: dict[str, str]) -> None:
    named = set(re.findall(r"No cycles are allowed in ([\w.]+)\.$", broken["no-circles"], re.MULTILINE))
    assert {package for _, _, package in CIRCLES} <= named, broken["no-circles"]


def find_imported(line: str) -> str:
    """Return the module that one import statement imports, by a pattern."""
    _, _, statement = line.rpartition("    ")
    parts = statement.split()
    return f"{parts[1]}(.{parts[3]})?" if parts[0] == "from" else parts[1]


def test_no_test_module_is_imported() -> None:
    """What several tests use is in tests/support or a conftest.py; a test module may change as its tests do."""
    imports = re.compile(r"^\s*(?:from|import) [\w.]*\btest_\w+", re.MULTILINE)
    files = [path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    assert {str(path.relative_to(ROOT)): found for path in files if (found := imports.findall(path.read_text()))} == {}


def test_settings_page_lists_exactly_the_variables_read() -> None:
    prefix = str(Settings.model_config["env_prefix"])
    settings = {f"{prefix}{name}".upper() for name in Settings.model_fields}
    sources = [path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    read = {name for source in sources for name in VARIABLE.findall(source)}  # by the participant's commands
    assert set(VARIABLE.findall(SETTINGS_PAGE.read_text())) == settings | read


def test_every_setting_is_described_where_it_is_defined() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
