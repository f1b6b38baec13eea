"""The steps of one split, for one process that makes all of them or for many that each make some."""

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from server.competitions.config_file import CompetitionFile
from server.competitions.model_shards import ShardToMake
from worker.inference import SplitEvaluator
from worker.scoring.setups import EvaluationSetup, SetupPlan
from worker.splits import seeds
from worker.splits.batch_size import choose_batch_size
from worker.splits.checkpoints import TrainingCheckpoints
from worker.splits.cut import Cut, Visibility, cut_dataset
from worker.splits.datasets.image_dataset import ImageDataset
from worker.splits.datasets.registry import open_dataset
from worker.splits.description import fingerprint, library_versions, maker, network_description, recipe_of
from worker.splits.files import write_json, write_tensors, write_text
from worker.splits.manifest import NETWORK_PATH as NETWORK
from worker.splits.manifest import EvaluationSettings, Manifest
from worker.splits.model_shards import STAGES, ModelShards, ShardPlan, models_per_shard
from worker.splits.originals import ORIGINAL
from worker.splits.outputs import OUTPUT_PATHS, Kind
from worker.splits.quality import check_learned, training_accuracy
from worker.splits.report import report_page, split_report
from worker.splits.sample import SAMPLE_FILES, write_sample
from worker.splits.stored_sets import SET_PATHS, StoredSet, write_sets
from worker.splits.train_models import train_or_resume
from worker.splits.training import TrainingJob, train_model
from worker.splits.workload import training_seconds
from worker.splits.workspace import OnProgress, Progress, Step, Workspace

TRAINED_ON: dict[Kind, tuple[str, ...]] = {
    "retrained": ("retain",),
    "oracle": ("retain",),
    "originals": ("retain", "forget"),
}
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
        """Return the steps that train and evaluate the sets of N models."""
        evaluated = (NETWORK, SET_PATHS["retain"], SET_PATHS["forget"], SET_PATHS["test"])
        return [
            *self._stored_models("retrained", evaluated),
            self._oracle_outputs(),
            *(self._stored_models("originals", evaluated) if self.has_originals else ()),
        ]

    def data_steps(self) -> list[Step]:
        """Return the steps that every other one needs."""
        return [
            Step("versions", (), library_versions),
            Step("data", (NETWORK, *SET_PATHS.values(), REPORT, REPORT_PAGE), self._make_data),
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
            f"{kind}-outputs",
            (OUTPUT_PATHS[kind],),
            lambda: self.shards(kind).write_outputs(),
            inputs=(*evaluated, *(path for step in shards for path in step.files)),
            stage=f"evaluating {STAGES[kind]}",
        )
        return [*shards, outputs]

    def _oracle_outputs(self) -> Step:
        return Step(
            "oracle-outputs",
            (OUTPUT_PATHS["oracle"],),
            lambda: self.shards("oracle").write_outputs(),
            inputs=(NETWORK, SET_PATHS["retain"], SET_PATHS["forget"], SET_PATHS["test"]),
            stage="oracle",
        )

    def run(self, step: Step) -> dict[str, Any]:
        """Make one step unless it is whole, and say so."""
        values = self.workspace.run(step)
        if step.name == "versions" and values != library_versions():
            self.progress(Progress("check", 0, 1, _version_change(values)))
        if step.stage not in (STAGES["retrained"], STAGES["originals"]):
            self.progress(Progress(step.stage or step.name, 1, 1))
        else:
            done = min(self.plan.n_models, (int(step.name.rpartition("-")[2]) + 1) * self.plan.models_per_shard)
            self.progress(Progress(step.stage, done, self.plan.n_models))
        return values

    def finish(self) -> Manifest:
        """Gather the records of all steps into manifest.json and remove the working files."""
        steps = self.workspace.records(self.steps())
        measured = ("original", "retrained-outputs", "oracle-outputs", "originals-outputs")
        manifest = Manifest(
            competition=self.competition.slug,
            visibility=self.visibility,
            setup=self.competition.metric.setup,
            n_models=self.competition.n_models,
            fingerprint=self.workspace.fingerprint,
            recipe=recipe_of(self.competition),
            seeds=self._seeds(),
            versions=steps["versions"].values,
            files={path: record for step in steps.values() for path, record in step.files.items()},
            retraining_time_s=steps["timing"].values["retraining_time_s"],
            evaluation=self.evaluation,
            quality={name: steps[name].values for name in measured if name in steps},
            steps=steps,
        )
        manifest.write(self.out)
        self.workspace.close()
        return manifest

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
        return EvaluationSettings(batch_size=values["batch_size"], precision=self._precision)

    @cached_property
    def evaluator(self) -> SplitEvaluator:
        settings = self.evaluation
        return SplitEvaluator(
            self.network, self.sets, device=self.device, batch_size=settings.batch_size, precision=settings.precision
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
        report = split_report(self.dataset, self.competition, self.cut, self.visibility)
        write_json(self.out / REPORT, report)
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
    return f"libraries changed since this split was begun ({', '.join(changed)}); what is made anew may differ in bits"


def _counted(progress: OnProgress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        done += n
        progress(Progress(stage, done, total))

    return advance
