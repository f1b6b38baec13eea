"""The steps of one split, for one process that makes all of them or for many that each make some."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from lethe.competition.file import CompetitionFile
from lethe.competition.model_shards import ShardToMake
from lethe.competition.preparation_share import ORACLE
from lethe.competition.recipes_section import Variation
from lethe.competition.report_section import Report
from lethe.competition.visibility import Visibility
from lethe.data import seeds
from lethe.data.files import read_json, write_json, write_tensors, write_text
from lethe.data.partition import Cut
from lethe.data.stored_sets import SET_PATHS, TRUE_LABELS, write_true_labels
from lethe.evaluation.evaluators import Evaluator
from lethe.evaluation.inference import load_original
from lethe.evaluation.manifest import NETWORK_PATH as NETWORK
from lethe.evaluation.manifest import EvaluationSettings, Manifest
from lethe.evaluation.model_outputs import ORIGINAL_OUTPUTS, OUTPUT_PATHS, RANDOM_OUTPUTS, Kind, StoredOutputs
from lethe.evaluation.original_models import ORIGINAL
from lethe.metrics.core.array_catalogue import CaptureLevel
from lethe.metrics.scoring.protocols import EvaluationSetup, SetupPlan
from lethe.preparation.fingerprint import (
    describe_version_change,
    fingerprint,
    library_versions,
    maker,
    training_recipe,
)
from lethe.preparation.model_shards import STAGES, ModelShards, ShardPlan
from lethe.preparation.probe_steps import probe_steps
from lethe.preparation.public_sample import SAMPLE_FILES, write_sample
from lethe.preparation.recipe_steps import recipe_step
from lethe.preparation.single_models import measure_retraining, train_original
from lethe.preparation.split_report import report_page
from lethe.preparation.step_cache import OnProgress, PreparationProgress, Step, Workspace
from lethe.preparation.task_kinds import task_preparation
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.convergence_check import check_learned
from lethe.training.trainer import Job

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
        self.task = task_preparation(competition.task.kind)
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
        answers, sample = self.task.sample_answer_files(), (*SAMPLE_FILES, *self._task_files)
        return [
            Step("sample", SAMPLE_FILES, self._make_sample),
            *([Step("sample-answers", answers, self._answer_sample, inputs=sample)] if answers else []),
            Step("original", (ORIGINAL,), self._make_original, inputs=(NETWORK, *data, *self._trained_from)),
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
            *self._recipe_outputs(),
            *probe_steps(
                self.competition,
                self.plan,
                self.out,
                device=self.device,
                progress=self.progress,
                store_first_oracles=lambda n_models, path: self.shards("oracle").store_first(n_models, path),
            ),
        ]

    def _random_outputs(self) -> Step:
        def make() -> None:
            evaluator: Any = self.evaluator  # logits are of images, and so is their evaluator
            logits = torch.from_numpy(evaluator.random_logits(range(RANDOM_NETWORKS)))
            write_tensors(self.out / RANDOM_OUTPUTS, {"random_forget_logits": logits})

        inputs = (NETWORK, SET_PATHS["forget"])
        return Step("random-outputs", (RANDOM_OUTPUTS,), make, inputs=inputs, stage="evaluating random networks")

    def _recipe_outputs(self) -> list[Step]:
        recipes = self.competition.splits.recipes
        if recipes is None:
            return []
        inputs = (NETWORK, SET_PATHS["retain"], SET_PATHS["forget"], SET_PATHS["test"], *self._trained_from)

        def make_shards(variation: Variation) -> ModelShards:
            training = variation.applied(self.competition.training)
            competition = self.competition.model_copy(update={"training": training, "report": Report()})
            settings = self.evaluation.model_copy(update={"capture": ()})
            given: dict[str, Any] = {"device": self.device, "settings": settings}
            return replace(
                self.shards("oracle"),
                plan=replace(self.plan, n_models=recipes.models),
                make_job=lambda: self._job("retain", competition=competition),
                competition=competition,
                seed_words=(*self._seed_words, "recipes", variation.label),
                evaluator=lambda: self.task.make_evaluator(self.out, self.network, self.sets, **given),
                variation=variation.label,
            )

        return [recipe_step(recipes, self.competition.training, self.out, make_shards=make_shards, inputs=inputs)]

    def data_steps(self) -> list[Step]:
        """Return the steps that every other one needs."""
        return [
            Step("versions", (), library_versions),
            Step("data", (NETWORK, *SET_PATHS.values(), *self._task_files, REPORT, REPORT_PAGE), self._make_data),
            *([Step("true-labels", (TRUE_LABELS,), self._make_true_labels)] if self._captured_from else []),
            Step("batch-size", (), self._find_batch_size),
            Step("plan", (), self._make_plan),
        ]

    @property
    def _task_files(self) -> tuple[str, ...]:
        return self.task.data_files(self.competition)

    @property
    def _trained_from(self) -> tuple[str, ...]:
        """Further files that models are made from: pretrained weights."""
        return tuple(path for path in self._task_files if path.startswith("hidden/pretrained"))

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
                inputs=(NETWORK, *(SET_PATHS[name] for name in TRAINED_ON[kind]), *self._trained_from),
                stage=STAGES[kind],
                tells_progress=True,
            )
            for shard in range(self.plan.n_shards)
        ]

    @property
    def has_originals(self) -> bool:
        """Whether runs start from original models of their own."""
        setup = EvaluationSetup(self.competition.scoring.setup)
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
            stage=ORACLE,
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
        if step.name == "versions" and values != (now := library_versions()):
            self.progress(PreparationProgress("check", 0, 1, describe_version_change(values, now)))
        if step.stage not in (STAGES["retrained"], STAGES["originals"]):
            self.progress(PreparationProgress(step.label, 1, 1))
        else:
            done = min(self.plan.n_models, (int(step.name.rpartition("-")[2]) + 1) * self.plan.models_per_shard)
            self.progress(PreparationProgress(step.stage, done, self.plan.n_models))
        return values

    def manifest(self) -> Manifest:
        """Return what the records of all steps make together."""
        steps = self.workspace.records(self.steps())
        outputs = {f"{kind}-outputs": self._captured(f"{kind}-outputs") for kind in OUTPUT_PATHS}
        measured = {"original": "original"} | outputs
        return Manifest(
            competition=self.competition.slug,
            visibility=self.visibility,
            setup=self.competition.scoring.setup,
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
    def dataset(self) -> Any:
        return self.task.open_dataset(self.competition)

    @cached_property
    def cut(self) -> Cut:
        return self.task.cut(self.dataset, self.competition, self.visibility)

    @cached_property
    def network(self) -> dict[str, Any]:
        return dict(read_json(self.out / NETWORK))  # as written: a shard needs no dataset, and may have none

    @cached_property
    def plan(self) -> ShardPlan:
        values = self.workspace.run(Step("plan", (), self._make_plan))
        return ShardPlan(self.competition.n_models, values["models_per_shard"], values["model_s"])

    @cached_property
    def sets(self) -> dict[str, Any]:
        return {name: self.task.read_set(self.out / SET_PATHS[name]) for name in ("retain", "forget", "test")}

    @property
    def evaluation(self) -> EvaluationSettings:
        values = self.workspace.run(Step("batch-size", (), self._find_batch_size))
        return EvaluationSettings(batch_size=values["batch_size"], precision=self._precision, capture=self.levels)

    @cached_property
    def evaluator(self) -> Evaluator:
        return self.task.make_evaluator(self.out, self.network, self.sets, device=self.device, settings=self.evaluation)

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
        of_sets: dict[str, str] = {kind: f"words {prefix}/{kind}/<index>" for kind in self.kinds}
        return {"scheme": seeds.SCHEME, "original": self._seed("original", 0), **of_sets}

    def _make_data(self) -> dict[str, Any]:
        write_json(self.out / NETWORK, self.task.describe_network(self.competition, self.dataset))
        self.task.write_data(self.out, self.competition, self.dataset, self.cut)
        self.__dict__.pop("sets", None)
        report = self.task.report(self.dataset, self.competition, self.cut, self.visibility)
        write_json(self.out / REPORT, report.model_dump(mode="json"))
        write_text(self.out / REPORT_PAGE, report_page(report))
        return {"sizes": {name: len(indices) for name, indices in self.cut.sets()}}

    def _make_sample(self) -> None:
        parts = self.task, self.dataset, self.cut
        write_sample(self.out, self.competition, *parts, network=self.network, device=self.device)

    def _answer_sample(self) -> None:
        self.task.write_sample_answers(self.out, self.competition, self.dataset, device=self.device)

    def _job(self, *names: str, competition: CompetitionFile | None = None) -> Job:
        sets = [self.sets[name] for name in names]
        return self.task.make_job(self.out, competition or self.competition, self.network, sets, device=self.device)

    def _make_original(self) -> dict[str, Any]:
        job = self._job("retain", "forget")
        digest = self.workspace.digest((NETWORK, SET_PATHS["retain"], SET_PATHS["forget"]))
        checkpoints = TrainingCheckpoints(self.workspace.work_dir / "original", digest)
        state = train_original(job, self._seed("original", 0), checkpoints=checkpoints, progress=self.progress)
        accuracy = self.task.training_accuracy(job, state)
        check_learned(self.competition, "the original model", accuracy, chance=self.task.chance(self.network))
        write_tensors(self.out / ORIGINAL, state)
        return {"train_accuracy": accuracy}

    def _measure_retraining(self) -> dict[str, Any]:
        return dict(measure_retraining(self._job("retain"), self._seed("timing", 0)))

    def _find_batch_size(self) -> dict[str, Any]:
        given: dict[str, Any] = {"device": self.device, "precision": self._precision}
        return {"batch_size": self.task.batch_size(self.network, self.sets, **given)}

    def _make_plan(self) -> dict[str, Any]:
        """Decide which models go into one file; later calls keep to it, as the files that there are do."""
        model_s = self.task.training_seconds(self.network, self.competition, self.sets["retain"], device=self.device)
        per_shard = self.task.models_per_shard(self.network, self.competition, model_s=model_s, device=self.device)
        return {"model_s": round(model_s, 6), "models_per_shard": per_shard}

    def shards(self, kind: Kind) -> ModelShards:
        """Return one set of N models, ready to be trained and evaluated by the shard."""
        return ModelShards(
            split_dir=self.out,
            kind=kind,
            task=self.task,
            plan=self.plan,
            make_job=lambda: self._job(*TRAINED_ON[kind]),
            seed_words=self._seed_words,
            competition=self.competition,
            data_digest=self.workspace.digest((NETWORK, *(SET_PATHS[name] for name in self.sets))),
            evaluator=lambda: self.evaluator,
            progress=self.progress,
        )
