"""The sets of models that metrics are judged on: what each knows of the forget set is known, exactly."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lethe.competition.file import CompetitionFile, Training
from lethe.competition.report_section import Report
from lethe.competition.splits_section import Variation
from lethe.competition.visibility import Visibility
from lethe.data.files import read_json
from lethe.data.seeds import derive_seeds
from lethe.data.stored_sets import SET_PATHS, StoredSet
from lethe.device import quantize
from lethe.errors import InvalidInput
from lethe.evaluation.evaluators import shared_arrays
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.evaluation.manifest import NETWORK_PATH
from lethe.evaluation.model_outputs import read_outputs
from lethe.evaluation.probes.model_probes import ImageExamples, trained_on
from lethe.evaluation.probes.split_probes import State, stored_models
from lethe.evaluation.shard_outputs import StoredOutputs
from lethe.metrics.scoring.arrays import logit_scaled_confidences
from lethe.networks.builders import build, to_inputs
from lethe.preparation.prepare import prepare_split
from lethe.runtime.data_loaders import load_data, make_loaders
from lethe.training.many_models import train_models
from lethe.training.trainer import TrainingJob

Arrays = dict[str, NDArray[Any]]
SETS = ("forget", "retain", "test")
LOGITS = tuple(f"{name}_logits" for name in SETS)
KEPT = ("confidences", "retain_accuracy", "test_accuracy", *LOGITS)
BITS = 4
NEVER = -30.0  # a logit that is never the largest
NOISE_STEPS = np.linspace(0.0, 20.0, 81)


@dataclass(frozen=True)
class ModelSets:
    """Arrays by set, each of N models, and what the split shares.

    retrained: the reference. unknown, fresh: retrained with other seeds. known: originals. recipes: retrained by
    variations. unlearned: by a method, from the originals. games: originals whose outputs are changed, not what they
    know. The others are changed models: *_quantised to 4 bits, *_relearned after an epoch on the forget set.
    """

    sets: Mapping[str, Arrays]
    recipes: Mapping[str, Arrays]
    games: Mapping[str, Arrays]
    shared: Arrays


def make_model_sets(
    file: CompetitionFile, out: Path, *, n_models: int, method: str, progress: Callable[[str], None] = lambda _: None
) -> ModelSets:
    """Prepare a split with N originals below `out` and make the sets. Raises InvalidInput for a task of text."""
    if file.task.kind != "image-classification":
        raise InvalidInput(f"metrics are judged on tasks of images, not {file.task.kind}")
    competition = _with_originals(file, n_models)
    progress("preparing the split")
    prepare_split(competition, Visibility.PUBLIC, out)
    evaluator = SplitEvaluator.load(out)
    making = _Making(out, competition, n_models)
    states: dict[str, Callable[[], Sequence[State]]] = {
        "known_quantised": lambda: [making.quantised(state) for state in making.originals],
        "fresh": lambda: making.fresh,
        "fresh_relearned": lambda: [making.relearned(state) for state in making.fresh],
        "unlearned": lambda: making.unlearned(method),
        "unlearned_quantised": lambda: [making.quantised(state) for state in making.unlearned(method)],
        "unlearned_relearned": lambda: [making.relearned(state) for state in making.unlearned(method)],
    }
    sets = {
        "retrained": _kept(dict(read_outputs(out, "retrained").arrays())),
        "unknown": _kept(dict(read_outputs(out, "oracle").arrays())),
        "known": _kept(dict(read_outputs(out, "originals").arrays())),
    }
    for name, make in states.items():
        progress(f"models: {name}")
        sets[name] = _evaluated(evaluator, make())
    recipes = {}
    for variation in variations(file):
        progress(f"retraining, {variation.label}")
        recipe = variation.applied(competition.training)
        recipes[variation.label] = _evaluated(evaluator, making.retrained(recipe, variation.label))
    shared = dict(shared_arrays(out))
    return ModelSets(sets, recipes, games(sets["known"], sets["retrained"], shared), shared)


def variations(file: CompetitionFile) -> tuple[Variation, ...]:
    """Return the file's variations of the recipe, or three quarters of the epochs and a weight decay of 5e-4."""
    if file.splits.recipes is not None:
        return file.splits.recipes.variations
    fewer = Variation(epochs=max(1, round(0.75 * file.training.epochs)))
    return (fewer, Variation(weight_decay=5e-4))


def _with_originals(file: CompetitionFile, n_models: int) -> CompetitionFile:
    return file.model_copy(
        update={
            "n_models": n_models,
            "scoring": file.scoring.model_copy(update={"setup": "reuse-n-n"}),
            "splits": file.splits.model_copy(update={"recipes": None}),
            "report": Report(capture=2),
        }
    )


class _Making:
    """Models of one prepared split."""

    def __init__(self, split_dir: Path, competition: CompetitionFile, n_models: int) -> None:
        self.split_dir, self.competition, self.n_models = split_dir, competition, n_models
        self.network = read_json(split_dir / NETWORK_PATH)
        self.retain, self.forget = (StoredSet.read(split_dir / SET_PATHS[name]) for name in ("retain", "forget"))
        self.originals = stored_models(split_dir, "originals", n_models)
        self.fresh = self.retrained(competition.training, "fresh")
        self._unlearned: list[State] = []

    def retrained(self, recipe: Training, word: str) -> list[State]:
        job = TrainingJob.on_device(self.network, recipe, self.retain.images, self.retain.labels, device="cpu")
        words = (self.competition.slug, str(self.competition.splits.seed), "meta", word)
        seeds = dict(enumerate(derive_seeds(*words, indices=range(self.n_models))))
        stacked = train_models(job, seeds)
        return [{name: tensor[model] for name, tensor in stacked.items()} for model in range(self.n_models)]

    def unlearned(self, method: str) -> list[State]:
        """Return one run of the method from every original, each with its own seed."""
        if not self._unlearned:
            self._unlearned = list(self._runs(method))
        return self._unlearned

    def _runs(self, method: str) -> Iterator[State]:
        unlearn = importlib.import_module(f"lethe.methods.{method}").unlearning
        data = load_data(self.split_dir / "visible")
        for seed, original in enumerate(self.originals):
            net = build(self.network)
            net.load_state_dict(original)
            torch.manual_seed(seed)
            loaders = make_loaders(data)
            unlearn(net, loaders.retain, loaders.forget, loaders.validation)
            yield {name: value.detach().clone() for name, value in net.state_dict().items()}

    def quantised(self, state: State) -> State:
        net = build(self.network)
        net.load_state_dict(state)
        quantize(net, bits=BITS)
        return dict(net.state_dict())

    def relearned(self, state: State) -> State:
        """Return the model after one epoch on the forget set, at the training's rate."""
        net = build(self.network)
        net.load_state_dict(state)
        examples = ImageExamples(to_inputs(self.forget.images, self.network), self.forget.labels)
        rate = self.competition.training.learning_rate
        (model,) = trained_on(net, examples, torch.arange(len(examples)), rate, n_epochs=1, seed=0)
        return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _evaluated(evaluator: SplitEvaluator, states: Sequence[State]) -> Arrays:
    return _kept(dict(StoredOutputs.of_runs([evaluator.evaluate_state(state) for state in states]).arrays()))


def _kept(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return what every set has; losses and correctness follow from the outputs."""
    return {name: arrays[name] for name in KEPT}


def games(known: Arrays, retrained: Arrays, shared: Arrays) -> dict[str, Arrays]:
    """Return the originals with changed outputs: nothing is forgotten, only what a metric reads.

    constant: equal outputs for all classes. class never predicted: the commonest class of the forget set. temperature:
    so high that the mean probability of the forget examples is that of the retrained models. noise: Gaussian, on all
    outputs, so much that the forget accuracy is.
    """
    outputs = {name: known[name].astype(np.float32) for name in LOGITS}
    labels = shared["forget_labels"]
    commonest = int(np.bincount(labels).argmax())
    rng = np.random.default_rng(0)
    drawn = {name: rng.standard_normal(array.shape, np.float32) for name, array in outputs.items()}
    wanted = float((1.0 / (1.0 + np.exp(-retrained["confidences"]))).mean())
    right = float((retrained["forget_logits"].argmax(axis=2) == labels).mean())

    def never(logits: NDArray[Any]) -> NDArray[Any]:
        changed = logits.copy()
        changed[..., commonest] = NEVER
        return changed

    def probability(logits: NDArray[Any]) -> float:
        shifted = np.exp(logits - logits.max(axis=2, keepdims=True))
        return float((shifted / shifted.sum(axis=2, keepdims=True))[:, np.arange(len(labels)), labels].mean())

    def accuracy(logits: NDArray[Any]) -> float:
        return float((logits.argmax(axis=2) == labels).mean())

    forget = outputs["forget_logits"]
    coldest = min(np.linspace(1.0, 0.0, 101), key=lambda factor: abs(probability(forget * factor) - wanted))
    noise = min(NOISE_STEPS, key=lambda sd: abs(accuracy(forget + sd * drawn["forget_logits"]) - right))
    changed = {
        "constant": {name: 0.0 * logits for name, logits in outputs.items()},
        "class never predicted": {name: never(logits) for name, logits in outputs.items()},
        "temperature": {name: (logits * coldest).astype(np.float32) for name, logits in outputs.items()},
        "noise": {name: (logits + noise * drawn[name]).astype(np.float32) for name, logits in outputs.items()},
    }
    return {name: _of_logits(logits, shared) for name, logits in changed.items()}


def _of_logits(logits: Arrays, shared: Arrays) -> Arrays:
    confidences = [logit_scaled_confidences(model, shared["forget_labels"]) for model in logits["forget_logits"]]
    accuracies = {
        f"{name}_accuracy": (logits[f"{name}_logits"].argmax(axis=2) == shared[f"{name}_labels"]).mean(axis=1)
        for name in ("retain", "test")
    }
    return {"confidences": np.stack(confidences), **accuracies, **logits}
