"""The steps of one split, probes included, for one process that makes all or for many that each make some."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lethe.competition.file import CompetitionFile, Training
from lethe.competition.preparation_share import ORACLE, ShardToMake, training_recipe
from lethe.competition.report_section import Report
from lethe.competition.splits_section import Recipes, Variation
from lethe.data.files import write_tensors
from lethe.data.stored_sets import SET_PATHS, TRUE_LABELS
from lethe.device import memory_given_back
from lethe.evaluation.image_evaluation import load_original
from lethe.evaluation.manifest import NETWORK_PATH as NETWORK
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import (
    ORIGINAL,
    ORIGINAL_OUTPUTS,
    OUTPUT_PATHS,
    PROBED_REFERENCES,
    RANDOM_OUTPUTS,
    RECIPE_OUTPUTS,
    Kind,
    write_probed_references,
)
from lethe.evaluation.probes.split_probes import FILES_READ, VERSION, SplitProbes, first_models, probed_references
from lethe.metrics.core.array_catalogue import CaptureLevel
from lethe.metrics.distribution.recipe_spread import AUGMENTATIONS
from lethe.preparation.model_shards import STAGES, ModelShards, ShardPlan
from lethe.preparation.public_sample import SAMPLE_FILES
from lethe.preparation.split_parts import REPORT, REPORT_PAGE, TRAINED_ON, SplitParts, measure_retraining
from lethe.preparation.step_cache import (
    OnProgress,
    PreparationProgress,
    Step,
    describe_version_change,
    library_versions,
)

PROBING = "probing references"


def probe_steps(
    competition: CompetitionFile,
    plan: ShardPlan,
    folder: Path,
    *,
    device: str,
    progress: OnProgress,
    store_first_oracles: Callable[[int, str], None],
) -> list[Step]:
    """Return the steps that store the oracle's first models, and probe them, as many retrained ones and the original.

    None where the competition keeps no weights. store_first_oracles: trains so many and writes them to a path.
    """
    n_models = min(competition.report.keep_weights, competition.n_models)
    if not n_models:
        return []
    oracle = plan.checkpoint_path("oracle", 0)
    shards = range(-(-n_models // plan.models_per_shard))
    retrained = [plan.checkpoint_path("retrained", shard) for shard in shards]

    def probe() -> None:
        done = count(1)

        def report() -> None:
            progress(PreparationProgress(PROBING, next(done), 2 * n_models + 1))

        with memory_given_back(torch.device(device)):
            probes = SplitProbes.read(folder, trained_at=competition.training.learning_rate, device=device)
            sides = probed_references(
                probes,
                retrained=first_models((folder / path for path in retrained), n_models),
                oracle=first_models([folder / oracle], n_models),
                original=load_original(folder),
                on_model=report,
            )
        write_probed_references(folder, sides)

    return [
        Step(
            f"oracle-models-{n_models}",
            (oracle,),
            lambda: store_first_oracles(n_models, oracle),
            inputs=(FILES_READ[0], SET_PATHS["retain"]),
            stage="oracle",
        ),
        Step(
            f"probes-{VERSION}-{n_models}",
            (PROBED_REFERENCES,),
            probe,
            inputs=(*FILES_READ, oracle, *retrained),
            stage=PROBING,
        ),
    ]


RANDOM_NETWORKS = 5
STAGE = "retraining by other recipes"


class Preparation(SplitParts):
    """One split in the making."""

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
            Step("timing", (), lambda: dict(measure_retraining(self._job("retain"), self._seed("timing", 0)))),
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

    @property
    def _captured_from(self) -> tuple[str, ...]:
        return (TRUE_LABELS,) if CaptureLevel.CONFUSION in self.levels else ()

    def _captured(self, step: str) -> str:
        """Return a step's name with its capture levels: outputs with other arrays are another step."""
        return "-".join([step, *(str(level) for level in self.levels)])

    def make(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.run(step)

    def run(self, step: Step) -> dict[str, Any]:
        """Make one step unless it is intact, and say so."""
        values = self.workspace.run(step)
        if step.name == "versions" and (change := describe_version_change(values, library_versions())):
            self.progress(PreparationProgress("check", 0, 1, change))
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


def recipe_step(
    recipes: Recipes,
    training: Training,
    split_dir: Path,
    *,
    make_shards: Callable[[Variation], ModelShards],
    inputs: tuple[str, ...],
) -> Step:
    """Return the step that trains and evaluates the models of every variation.

    Outputs lie in the working folder as soon as a file of models is evaluated, so that a step that was broken off goes
    on. Other variations, or another number of models, are another step.
    """

    def make() -> None:
        found = [make_shards(variation).all_outputs() for variation in recipes.variations]
        arrays = {
            "recipe_confidences": np.stack([outputs.confidences for outputs in found]),
            "recipe_test_accuracy": np.stack([outputs.test_accuracy for outputs in found]),
            "recipe_settings": np.array([_settings(each.applied(training)) for each in recipes.variations]),
        }
        write_tensors(split_dir / RECIPE_OUTPUTS, {name: torch.from_numpy(array) for name, array in arrays.items()})

    digest = hashlib.sha256(recipes.model_dump_json().encode()).hexdigest()[:12]
    return Step(f"recipes-{digest}", (RECIPE_OUTPUTS,), make, inputs=inputs, stage=STAGE, tells_progress=True)


def _settings(recipe: Training) -> list[float]:
    return [
        float(recipe.epochs),
        recipe.weight_decay,
        float(recipe.batch_size),
        float(AUGMENTATIONS.index(recipe.augmentation)),
    ]
