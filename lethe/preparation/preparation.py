"""The steps of one split, for one process that makes all of them or for many that each make some."""

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from lethe.competition.file import CompetitionFile
from lethe.competition.model_shards import ShardToMake
from lethe.competition.visibility import Visibility
from lethe.data import seeds
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.datasets.registry import open_dataset
from lethe.data.files import write_json, write_tensors, write_text
from lethe.data.partition import Cut, cut_dataset
from lethe.data.stored_sets import SET_PATHS, TRUE_LABELS, StoredSet, read_true_labels, write_sets, write_true_labels
from lethe.evaluation.inference import SplitEvaluator, load_original
from lethe.evaluation.manifest import NETWORK_PATH as NETWORK
from lethe.evaluation.manifest import EvaluationSettings, Manifest
from lethe.evaluation.model_outputs import ORIGINAL_OUTPUTS, OUTPUT_PATHS, RANDOM_OUTPUTS, Kind, StoredOutputs
from lethe.evaluation.original_models import ORIGINAL
from lethe.metrics.array_catalogue import CaptureLevel
from lethe.metrics.epsilon.protocols import EvaluationSetup, SetupPlan
from lethe.preparation.batch_size import choose_batch_size
from lethe.preparation.cost_estimate import training_seconds
from lethe.preparation.fingerprint import fingerprint, library_versions, maker, network_description, training_recipe
from lethe.preparation.model_shards import STAGES, ModelShards, ShardPlan, models_per_shard
from lethe.preparation.public_sample import SAMPLE_FILES, write_sample
from lethe.preparation.split_report import make_split_report, report_page
from lethe.preparation.step_cache import OnProgress, Progress, Step, Workspace
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.convergence_check import check_learned, training_accuracy
from lethe.training.trainer import TrainingJob, train_model
from lethe.training.trainer_selection import train_or_resume

TRAINED_ON: dict[Kind, tuple[str, ...]] = {
    "retrained": ("retain",),
    "oracle": ("retain",),
    "originals": ("retain", "forget"),
}
RANDOM_NETWORKS = 5
REPORT, REPORT_PAGE = "report.json", "report.html"


class Preparation:
    """One split in the making."""

    def __init__(
        self, competition: CompetitionFile, visibility: Visibility, out: Path, *, device: str, progress: OnProgress
    ) -> None:
        self.competition, self.visibility, self.out = competition, visibility, out
        self.device = device
        self.progress = progress
        self.workspace = Workspace(
            out,
            fingerprint=fingerprint(competition, visibility),
            maker=maker(competition, visibility, device=device),
            progress=progress,
        )

    def steps(self) -> list[Step]:
        """Return every step, in an order in which each finds what it reads. The data steps must have been made."""
        return [*self.data_steps(), *self.first_steps(), *self.model_set_steps()]

    def first_steps(self) -> list[Step]:
        """Return the steps that one process makes before it is worth training many models."""
        data = (SET_PATHS["retain"], SET_PATHS["forget"])
        return [
            Step("sample", SAMPLE_FILES, self._make_sample),
            Step("original", (ORIGINAL,), self._make_original, inputs=(NETWORK, *data)),
            Step("timing", (), self._measure_retraining),
        ]

    def model_set_steps(self) -> list[Step]:
        """Return the steps that train and evaluate the sets of N models, and evaluate the original model."""
        evaluated = (NETWORK, SET_PATHS["retain"], SET_PATHS["forget"], SET_PATHS["test"], *self._captured_from)
        return [
            *self._stored_models("retrained", evaluated),
            self._oracle_outputs(),
            *(self._stored_models("originals", evaluated) if self.has_originals else ()),
            Step(
                self._captured("original-outputs"),
                (ORIGINAL_OUTPUTS,),
                self._write_original_outputs,
                inputs=(*evaluated, ORIGINAL),
                stage="evaluating the original model",
            ),
            *([self._random_outputs()] if CaptureLevel.LOGITS in self.levels else []),
        ]

    def _random_outputs(self) -> Step:
        def make() -> None:
            logits = torch.from_numpy(self.evaluator.random_logits(range(RANDOM_NETWORKS)))
            write_tensors(self.out / RANDOM_OUTPUTS, {"random_forget_logits": logits})

        inputs = (NETWORK, SET_PATHS["forget"])
        return Step("random-outputs", (RANDOM_OUTPUTS,), make, inputs=inputs, stage="evaluating random networks")

    def data_steps(self) -> list[Step]:
        """Return the steps that every other one needs."""
        return [
            Step("versions", (), library_versions),
            Step("data", (NETWORK, *SET_PATHS.values(), REPORT, REPORT_PAGE), self._make_data),
            *([Step("true-labels", (TRUE_LABELS,), self._make_true_labels)] if self._captured_from else []),
            Step("batch-size", (), self._find_batch_size),
            Step("plan", (), self._make_plan),
        ]

    def missing_shards(self) -> list[ShardToMake]:
        """Return the shards of models that are still to be trained."""
        outputs = self._oracle_outputs()
        missing: list[ShardToMake] = []
        for kind in self.kinds:
            steps = self.model_steps(kind) if kind != "oracle" else []
            shards = self.shards(kind)
            for position in range(self.plan.n_shards):
                made = self.workspace.finished(steps[position]) if steps else shards.has_outputs(position)
                if not made and not (kind == "oracle" and self.workspace.finished(outputs)):
                    indices = self.plan.indices(position)
                    missing.append(ShardToMake(kind, position, indices.start, len(indices)))
        return missing

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The sets of N models that this competition needs."""
        return ("retrained", "oracle", "originals") if self.has_originals else ("retrained", "oracle")

    def model_steps(self, kind: Kind) -> list[Step]:
        """Return the steps that train stored models, one for each file of checkpoints; they need only the data."""
        return [
            Step(
                f"{kind}-{shard:05d}",
                (self.plan.checkpoint_path(kind, shard),),
                lambda shard=shard: self.shards(kind).make(shard),  # type: ignore[misc]
                inputs=(NETWORK, *(SET_PATHS[name] for name in TRAINED_ON[kind])),
                stage=STAGES[kind],
            )
            for shard in range(self.plan.n_shards)
        ]

    @property
    def has_originals(self) -> bool:
        """Whether runs start from original models of their own."""
        setup = EvaluationSetup(self.competition.metric.setup)
        return SetupPlan(setup, n_models=self.competition.n_models).n_original > 1

    def _stored_models(self, kind: Kind, evaluated: tuple[str, ...]) -> list[Step]:
        """Return the steps of a set of models that are kept, and of its outputs."""
        shards = self.model_steps(kind)
        outputs = Step(
            self._captured(f"{kind}-outputs"),
            (OUTPUT_PATHS[kind],),
            lambda: self.shards(kind).write_outputs(),
            inputs=(*evaluated, *(path for step in shards for path in step.files)),
            stage=f"evaluating {STAGES[kind]}",
        )
        return [*shards, outputs]

    def _oracle_outputs(self) -> Step:
        return Step(
            self._captured("oracle-outputs"),
            (OUTPUT_PATHS["oracle"],),
            lambda: self.shards("oracle").write_outputs(),
            inputs=(NETWORK, SET_PATHS["retain"], SET_PATHS["forget"], SET_PATHS["test"], *self._captured_from),
            stage="oracle",
        )

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The capture levels that the competition's metrics need."""
        return self.competition.report.capture_levels

    @property
    def _captured_from(self) -> tuple[str, ...]:
        return (TRUE_LABELS,) if CaptureLevel.CONFUSION in self.levels else ()

    def _captured(self, step: str) -> str:
        """Return a step's name with its capture levels: outputs with other arrays are another step."""
        return "-".join([step, *(str(level) for level in self.levels)])

    def _make_true_labels(self) -> None:
        write_true_labels(self.out, self.dataset, self.cut)

    def _write_original_outputs(self) -> None:
        outputs = StoredOutputs.of_runs([self.evaluator.evaluate_state(load_original(self.out))])
        outputs.write(self.out / ORIGINAL_OUTPUTS)

    def run(self, step: Step) -> dict[str, Any]:
        """Make one step unless it is intact, and say so."""
        values = self.workspace.run(step)
        if step.name == "versions" and values != library_versions():
            self.progress(Progress("check", 0, 1, _version_change(values)))
        if step.stage not in (STAGES["retrained"], STAGES["originals"]):
            self.progress(Progress(step.stage or step.name, 1, 1))
        else:
            done = min(self.plan.n_models, (int(step.name.rpartition("-")[2]) + 1) * self.plan.models_per_shard)
            self.progress(Progress(step.stage, done, self.plan.n_models))
        return values

    def manifest(self) -> Manifest:
        """Return what the records of all steps make together."""
        steps = self.workspace.records(self.steps())
        outputs = {f"{kind}-outputs": self._captured(f"{kind}-outputs") for kind in OUTPUT_PATHS}
        measured = {"original": "original"} | outputs
        return Manifest(
            competition=self.competition.slug,
            visibility=self.visibility,
            setup=self.competition.metric.setup,
            n_models=self.competition.n_models,
            fingerprint=self.workspace.fingerprint,
            recipe=training_recipe(self.competition),
            seeds=self._seeds(),
            versions=steps["versions"].values,
            files={path: record for step in steps.values() for path, record in step.files.items()},
            retraining_time_s=steps["timing"].values["retraining_time_s"],
            evaluation=self.evaluation,
            quality={name: steps[step].values for name, step in measured.items() if step in steps},
            steps=steps,
        )

    @cached_property
    def dataset(self) -> ImageDataset:
        return open_dataset(self.competition.dataset)

    @cached_property
    def cut(self) -> Cut:
        return cut_dataset(self.dataset, self.competition, self.visibility)

    @cached_property
    def network(self) -> dict[str, Any]:
        return network_description(self.competition, self.dataset)

    @cached_property
    def plan(self) -> ShardPlan:
        values = self.workspace.run(Step("plan", (), self._make_plan))
        return ShardPlan(self.competition.n_models, values["models_per_shard"], values["model_s"])

    @cached_property
    def sets(self) -> dict[str, StoredSet]:
        return {name: StoredSet.read(self.out / SET_PATHS[name]) for name in ("retain", "forget", "test")}

    @property
    def evaluation(self) -> EvaluationSettings:
        values = self.workspace.run(Step("batch-size", (), self._find_batch_size))
        return EvaluationSettings(batch_size=values["batch_size"], precision=self._precision, capture=self.levels)

    @cached_property
    def evaluator(self) -> SplitEvaluator:
        settings = self.evaluation
        return SplitEvaluator(
            self.network,
            self.sets,
            device=self.device,
            batch_size=settings.batch_size,
            precision=settings.precision,
            levels=settings.capture,
            true_forget_labels=read_true_labels(self.out),
        )

    def let_go_of_device(self) -> None:
        """Forget what is kept on the device; it is made again when it is wanted."""
        self.__dict__.pop("evaluator", None)

    @property
    def _precision(self) -> Any:
        return self.competition.training.precision if self.device != "cpu" else "float32"

    @property
    def _seed_words(self) -> tuple[str, ...]:
        """Whoever knew these words could train the very models that a submission is compared with."""
        return self.competition.slug, self.visibility, str(self.competition.splits.seed)

    def _seed(self, *words: str | int) -> int:
        return seeds.derive_seed(*self._seed_words, *words)

    def _seeds(self) -> dict[str, Any]:
        prefix = f"{self.competition.slug}/{self.visibility}/<splits.seed>"
        return {
            "scheme": seeds.SCHEME,
            "original": self._seed("original", 0),
            **{kind: f"words {prefix}/{kind}/<index>" for kind in self.kinds},
        }

    def _make_data(self) -> dict[str, Any]:
        write_json(self.out / NETWORK, self.network)
        write_sets(self.out, self.dataset, self.cut)
        self.__dict__.pop("sets", None)
        report = make_split_report(self.dataset, self.competition, self.cut, self.visibility)
        write_json(self.out / REPORT, report.model_dump(mode="json"))
        write_text(self.out / REPORT_PAGE, report_page(report))
        return {"sizes": {name: len(indices) for name, indices in self.cut.sets()}}

    def _make_sample(self) -> None:
        write_sample(self.out, self.competition, self.dataset, self.cut, self.network, device=self.device)

    def _job(self, *names: str) -> TrainingJob:
        parts = [self.sets[name] for name in names]
        # one set alone stays memory-mapped
        images = parts[0].images if len(parts) == 1 else torch.cat([part.images for part in parts])
        labels = torch.cat([part.labels for part in parts])
        return TrainingJob.on_device(self.network, self.competition.training, images, labels, device=self.device)

    def _make_original(self) -> dict[str, Any]:
        job = self._job("retain", "forget")
        epochs = self.competition.training.epochs
        digest = self.workspace.digest((NETWORK, SET_PATHS["retain"], SET_PATHS["forget"]))
        state = train_or_resume(
            job,
            0,
            self._seed("original", 0),
            checkpoints=TrainingCheckpoints(self.workspace.work_dir / "original", digest),
            on_epoch=_counted(self.progress, "original model", epochs),
        )
        accuracy = training_accuracy(job, state)
        check_learned(self.competition, "the original model", accuracy, n_classes=self.dataset.n_classes)
        write_tensors(self.out / ORIGINAL, state)
        return {"train_accuracy": accuracy}

    def _measure_retraining(self) -> dict[str, Any]:
        """Measure one retraining as the plain loop does it: the basis of a run's time limit."""
        job = self._job("retain")
        started = time.perf_counter()
        train_model(job, self._seed("timing", 0))
        if job.device.type == "cuda":
            torch.cuda.synchronize()
        return {"retraining_time_s": round(time.perf_counter() - started, 4)}

    def _find_batch_size(self) -> dict[str, Any]:
        return {"batch_size": choose_batch_size(self.network, self.sets, device=self.device, precision=self._precision)}

    def _make_plan(self) -> dict[str, Any]:
        """Decide which models go into one file; later calls keep to it, as the files that there are do."""
        recipe, device = self.competition.training, self.device
        model_s = training_seconds(self.network, recipe, n_images=len(self.sets["retain"]), device=device)
        return {
            "model_s": round(model_s, 6),
            "models_per_shard": models_per_shard(self.network, recipe, model_s=model_s, device=device),
        }

    def shards(self, kind: Kind) -> ModelShards:
        """Return one set of N models, ready to be trained and evaluated by the shard."""
        return ModelShards(
            split_dir=self.out,
            kind=kind,
            plan=self.plan,
            make_job=lambda: self._job(*TRAINED_ON[kind]),
            seed_words=self._seed_words,
            competition=self.competition,
            data_digest=self.workspace.digest((NETWORK, *(SET_PATHS[name] for name in self.sets))),
            evaluator=lambda: self.evaluator,
            progress=self.progress,
        )


def _version_change(before: dict[str, str]) -> str:
    """Say which libraries are not those that the split's first files were made with."""
    now = library_versions()
    changed = [f"{name} {before.get(name, 'unknown')} -> {now[name]}" for name in now if now[name] != before.get(name)]
    return f"libraries changed since this split was begun ({', '.join(changed)}); rebuilt files may differ in bits"


def _counted(progress: OnProgress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        done += n
        progress(Progress(stage, done, total))

    return advance
