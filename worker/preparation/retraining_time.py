"""What the fastest retraining takes of the processor: the basis of a run's limit.

The recipe is sent through the sandbox as if it were a submission, and so is code that does nothing: what starting a
run takes is then known, and is subtracted. Preparation has measured its own loops; the quickest of all counts, because
a participant need not write a loop of torch, whose own time is most of what a small network takes in it.
"""

import json
import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from lethe.competition.file import CompetitionFile, Training
from lethe.competition.run_limits import RetrainingCost
from lethe.competition.sections import Limits
from lethe.evaluation.manifest import RetrainingTimes
from sandbox.errors import BackendUnavailable, ZygoteFailed
from sandbox.launcher import Launcher, RunPolicy, RunRequest, Sandbox, SandboxSpec
from server.config import Settings
from worker.evaluation.run_policy import run_policy

log = structlog.get_logger()
TRIES, MAX_OTHER_USE = 2, 0.25  # at a first measurement; of the machine's processors, what others may use meanwhile
REPEATS = 3  # of which the least counts: other work on the machine only ever adds
MAX_S = 30.0  # of a retraining that is longer, some epochs are measured
GUARD_S = 600.0
FAR_QUICKER = 4.0  # times as quick as the plain loop: then that loop in the sandbox is not the fastest either
DOUBTFUL = (
    "one retraining was measured while others used {others:.0%} of the machine's processors, which adds to it: a run's "
    "limit may be too generous. Measure it again on an idle machine: lethe competition prepare NAME --measure"
)
KEPT = (
    "one retraining was not measured again, because others used {others:.0%} of the machine's processors: the earlier "
    "measurement stays. Ask again on an idle machine: lethe competition prepare NAME --measure"
)
NOTHING = "def unlearning(net, retain_loader, forget_loader, val_loader):\n    pass\n"
RETRAINING = """
import json
from pathlib import Path

import torch
from torch.nn import functional

RECIPE = json.loads(Path(__file__).with_name("recipe.json").read_text())
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def unlearning(net, retain_loader, forget_loader, val_loader):
    for module in net.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    optimizer = OPTIMIZERS[RECIPE["optimizer"]](net.parameters(), **RECIPE["options"])
    loader = retain_loader.dataset.loader(style="dict", batch_size=RECIPE["batch_size"])
    net.train()
    for _ in range(RECIPE["epochs"]):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(net, batch).backward()
            optimizer.step()
    net.eval()


def loss_of(net, batch):
    if "image" in batch:
        return functional.cross_entropy(net(batch["image"]), batch["label"])
    logits = net(batch["input_ids"], batch["attention_mask"])
    return functional.cross_entropy(logits[:, :-1].transpose(1, 2), batch["labels"][:, 1:])
"""


class NotMeasured(Exception):
    """A run of the measurement ended without weights; the message says how."""


@dataclass
class _Measurement:
    sandbox: Sandbox
    stage: Path
    spent_s: float = 0.0  # processor seconds of all runs so far

    def cpu_s(self, name: str, files: dict[str, str], *, repeats: int) -> float:
        """Return the processor seconds of the code's run: the least of several."""
        folder = self.stage / name
        folder.mkdir(mode=0o755, exist_ok=True)
        for path, text in files.items():
            (folder / path).write_text(text, encoding="utf-8")
        results = [self.sandbox.run(RunRequest(code_dir=folder, run=run, seed=run)) for run in range(repeats)]
        self.spent_s += sum(result.cpu_time_s for result in results)
        for result in results:
            if result.verdict.outcome != "weights":
                raise NotMeasured(f"{name}: {result.facts.host_error or result.verdict.message}")
        return min(result.cpu_time_s for result in results)


def measure_retraining_cost(
    settings: Settings,
    split_dir: Path,
    competition: CompetitionFile,
    timing: RetrainingTimes,
    *,
    before: RetrainingCost | None = None,
) -> RetrainingCost:
    """Return what one retraining of a split takes; of the processor only where runs compute on it.

    Other work on the machine adds to it. Beside much of it, a first measurement is repeated and the least counts; one
    that is to replace another says nothing, and `before` stays.

    split_dir: of a split whose visible files are made. timing: what preparation measured in its own loops. Where the
    sandbox does not start or a run fails, the processor time stays unknown, and the log says why.
    """
    time_s = timing.retraining_time_s
    if settings.worker_device != "cpu":
        return RetrainingCost(time_s)
    settings.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="retraining-", dir=settings.scratch) as name:
        stage = Path(name)
        stage.chmod(0o755)
        spec = SandboxSpec(
            data_dir=split_dir / "visible",
            stage_dir=stage,
            policy=_policy(competition.limits, threads=settings.worker_threads, time_s=time_s),
            backend=settings.sandbox_backend,
            production=settings.environment == "production",
            required_controls=frozenset(),
        )
        try:
            with Launcher(spec).start() as sandbox:
                return _undisturbed(_Measurement(sandbox, stage), competition, timing, before=before)
        except (BackendUnavailable, ZygoteFailed, NotMeasured) as error:
            log.warning("retraining not measured in the sandbox", competition=competition.slug, reason=str(error))
            return before or RetrainingCost(time_s)


def _policy(limits: Limits, *, threads: int, time_s: float) -> RunPolicy:
    """Return the policy of a submission's run, but for its time."""
    longest_s = GUARD_S + 20 * time_s
    unlimited = limits.model_copy(
        update={"run_fraction_of_retraining": None, "run_cpu_time_s": None, "run_wall_time_s": longest_s}
        | {"wall_time_s": longest_s, "run_idle_time_s": longest_s}
    )
    return run_policy(unlimited, retraining=RetrainingCost(), threads=threads)


def _undisturbed(
    measurement: _Measurement, competition: CompetitionFile, timing: RetrainingTimes, *, before: RetrainingCost | None
) -> RetrainingCost:
    costs: list[RetrainingCost] = []
    least = 1.0
    for _ in range(TRIES):
        load, spent_s = _Load(os.cpu_count() or 1), measurement.spent_s
        costs.append(_measured(measurement, competition, timing))
        others = load.of_others(measurement.spent_s - spent_s)
        if others <= MAX_OTHER_USE:
            return costs[-1]
        least = min(least, others)
        log.warning("retraining measured beside other work", competition=competition.slug, others=round(others, 2))
        if before is not None:
            return replace(before, doubt=KEPT.format(others=least))
    return replace(min(costs, key=lambda cost: cost.cpu_s or 0.0), doubt=DOUBTFUL.format(others=least))


class _Load:
    """What share of the machine's processors others have used since it was made."""

    def __init__(self, n_processors: int) -> None:
        self._n = n_processors
        self._began, self._busy_s = time.monotonic(), _busy_s()

    def of_others(self, own_s: float) -> float:
        took_s = time.monotonic() - self._began
        return max(0.0, _busy_s() - self._busy_s - own_s) / (took_s * self._n)


def _busy_s() -> float:
    """Return the processor seconds of everything on this machine, with what a hypervisor took; 0 where none tells."""
    try:
        ticks = [int(each) for each in Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:9]]
    except (OSError, ValueError):
        return 0.0
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")  # without idle and waiting for disks


def _measured(measurement: _Measurement, competition: CompetitionFile, timing: RetrainingTimes) -> RetrainingCost:
    recipe, time_s = competition.training, timing.retraining_time_s
    epochs = max(1, min(recipe.epochs, round(recipe.epochs * MAX_S / max(time_s, 1e-9))))
    start_s = measurement.cpu_s("nothing", {"submission.py": NOTHING}, repeats=REPEATS)
    fastest_s, plain_s = timing.least_cpu_s, timing.retraining_cpu_s
    if fastest_s is not None and plain_s is not None and FAR_QUICKER * fastest_s <= plain_s:
        return RetrainingCost(time_s, fastest_s, round(start_s, 4))
    files = {"submission.py": RETRAINING, "recipe.json": recipe_as_json(recipe, epochs=epochs)}
    whole_s = measurement.cpu_s("retraining", files, repeats=REPEATS if time_s < MAX_S / 10 else 1)
    cpu_s = max(whole_s - start_s, 1e-3) * recipe.epochs / epochs
    if fastest_s is not None:
        cpu_s = min(cpu_s, fastest_s)
    return RetrainingCost(time_s, round(cpu_s, 4), round(start_s, 4))


def recipe_as_json(recipe: Training, *, epochs: int) -> str:
    """Return what `RETRAINING` reads beside itself."""
    options = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}
    if recipe.optimizer == "sgd":
        options["momentum"] = recipe.momentum
    wanted = {"epochs": epochs, "batch_size": recipe.batch_size, "optimizer": recipe.optimizer, "options": options}
    return json.dumps(wanted)
