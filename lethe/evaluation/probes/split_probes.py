"""The arrays of capture level 4: the probes on some unlearned models, and on the references that a split stores."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor, nn

from lethe.data.files import read_json
from lethe.data.question_answers import StoredAnswers
from lethe.data.stored_sets import SET_PATHS, StoredSet
from lethe.device import device_arithmetic, one_thread, repeatable_attention, zero_for_denormals
from lethe.evaluation.evaluators import IMAGES
from lethe.evaluation.image_evaluation import load_original
from lethe.evaluation.manifest import NETWORK_PATH, Manifest, require_whole
from lethe.evaluation.model_outputs import ORIGINAL
from lethe.evaluation.probes.model_probes import (
    RELEARNING_SHARE,
    AnswerExamples,
    Examples,
    ImageExamples,
    attacked_knowledge,
    loss_barrier,
    relearn_epochs,
)
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.forgetting.probes import weight_distance
from lethe.networks.builders import build, to_inputs

RADII = (0.0, 0.01, 0.03, 0.1)
COPIES = 100
BATCH = 256


def perturbed_accuracy(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    input_scale: float,
    radii: Sequence[float] = RADII,
    copies: int = COPIES,
    batch: int = BATCH,
    seed: int = 0,
) -> npt.NDArray[np.float64]:
    """Return the share of perturbed copies that the model classifies correctly, shape (n_radii, n_examples).

    A copy lies at a distance of radius * input_scale * sqrt(number of inputs) in a uniform direction, so a radius is
    the root mean square change of an input in units of input_scale (such as the greatest minus the least value).
    network: a copy of it is loaded with weights. images, labels: the forget set on its device. Equal seeds give equal
    perturbations, so models are compared on the same copies.
    Source: Hsu et al. 2025, residual knowledge under Gaussian noise.
    """
    model = deepcopy(network)
    model.load_state_dict(weights)
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    result = np.zeros((len(radii), len(labels)))
    with torch.inference_mode():
        for _ in range(copies):
            directions = _directions(images, generator)
            for place, radius in enumerate(radii):
                moved = images + radius * input_scale * directions
                result[place] += _right(model, moved, labels, batch)
    return result / copies


def _directions(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return directions of root mean square 1, uniform on the sphere."""
    noise = torch.randn(images.shape, generator=generator).to(images.device)
    norms = noise.flatten(1).square().mean(dim=1).sqrt()
    return noise / norms.view(-1, *(1,) * (images.ndim - 1))


def _right(model: nn.Module, images: Tensor, labels: Tensor, batch: int) -> npt.NDArray[np.float64]:
    parts = zip(torch.split(images, batch), torch.split(labels, batch), strict=True)
    right = torch.cat([model(x).argmax(dim=1) == y for x, y in parts])
    return right.cpu().numpy().astype(np.float64)


Weights = Mapping[str, Tensor]


def parameter_arrays(state: Weights, network: nn.Module) -> dict[str, npt.NDArray[Any]]:
    """Return the trained parameters of a state dict as arrays by name, without buffers such as running means.

    network: of the same architecture; only its names are used. A parameter shared by two layers occurs once.
    Raises InvalidMetricInput for a parameter that the state dict lacks.
    """
    names = [name for name, _ in network.named_parameters()]
    lacking = [name for name in names if name not in state]
    if lacking:
        raise InvalidMetricInput(f"the state dict lacks the parameter {lacking[0]}")
    return {name: state[name].detach().cpu().float().numpy() for name in names}


def weight_distances(
    network: nn.Module, models: Sequence[Weights], retrained: Sequence[Weights]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return `weight_distance` [k] of models from the retrained ones with the same number, and their `weight_norm` [k].

    models: as many state dicts as retrained ones, or one that stands for all.
    Raises InvalidMetricInput for other numbers of models, and for weights that are not finite.
    """
    if len(models) not in (1, len(retrained)):
        raise InvalidMetricInput(f"{len(models)} models cannot be paired with {len(retrained)} retrained ones")
    own = [parameter_arrays(state, network) for state in models] * (len(retrained) if len(models) == 1 else 1)
    found = [
        weight_distance(mine, parameter_arrays(state, network)) for mine, state in zip(own, retrained, strict=True)
    ]
    return {
        "weight_distance": np.array([result.value for result in found]),
        "weight_norm": np.array([result.table["norm"] for result in found]),
    }


VERSION = 2  # of the arrays: splits whose references older probes read are probed again when they are prepared
FILES_READ = (NETWORK_PATH, ORIGINAL, SET_PATHS["forget"], SET_PATHS["retain"])
State = dict[str, Tensor]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class SplitProbes:
    """What the probes need of a split. forget, retain: on the network's device. learning_rate: the training's."""

    network: nn.Module
    forget: Examples
    retain: Examples
    original: State
    original_loss: float
    learning_rate: float

    @classmethod
    def load(cls, split_dir: Path, *, device: str = "cpu") -> Self:
        """Return the probes of a prepared split. Raises DamagedSplit naming a file."""
        manifest = require_whole(split_dir, only=FILES_READ)
        return cls.read(split_dir, trained_at=float(manifest.recipe["training"]["learning_rate"]), device=device)

    @classmethod
    def read(cls, split_dir: Path, *, trained_at: float, device: str = "cpu") -> Self:
        """Return the probes from the files of a split. trained_at: the learning rate of the training."""
        network = read_json(split_dir / NETWORK_PATH)
        original = load_original(split_dir)
        net = build(network)
        net.load_state_dict(original)
        net = net.to(device)
        forget, retain = (_examples(split_dir / SET_PATHS[name], network, device) for name in ("forget", "retain"))
        with _repeatable(torch.device(device)):
            original_loss = forget.mean_loss(net)
        return cls(net, forget, retain, original, original_loss, trained_at)

    def arrays(
        self, models: Sequence[State], retrained: Sequence[State], *, on_model: Callable[[], None] = lambda: None
    ) -> Arrays:
        """Return `attacked_knowledge` [k, G], `loss_barrier`, `weight_distance` and `weight_norm` [k].

        Of images also `relearn_epochs` [k] and `perturbed_accuracy` [k, D, S].
        models: k state dicts, or one that stands for as many as there are retrained ones (the original model), whose
        arrays but the last two are then of one model. retrained: state dicts, model i to compare model i with.
        on_model: called for each model that is probed.
        Raises InvalidMetricInput for other numbers of models, and for weights that are not finite.
        """
        with _repeatable(next(self.network.parameters()).device):
            distances = weight_distances(self.network, models, retrained)
            found = []
            for state in models:
                found.append(self._attacked(state) | self._of_images(state))
                on_model()
        return {name: np.stack([arrays[name] for arrays in found]) for name in found[0]} | distances

    def _attacked(self, state: State) -> Arrays:
        knowledge = attacked_knowledge(
            self.network,
            state,
            original=self.original,
            forget=self.forget,
            retain=self.retain,
            learning_rate=self.learning_rate,
        )
        barrier = loss_barrier(self.network, state, original=self.original, forget=self.forget)
        return {"attacked_knowledge": knowledge, "loss_barrier": np.array(barrier)}

    def _of_images(self, state: State) -> Arrays:
        if not isinstance(self.forget, ImageExamples):
            return {}
        images, labels = self.forget.images, self.forget.labels
        epochs = relearn_epochs(
            self.network,
            state,
            images,
            labels,
            original_loss=self.original_loss,
            learning_rate=RELEARNING_SHARE * self.learning_rate,
        )
        scale = float(images.max() - images.min()) or 1.0
        accuracy = perturbed_accuracy(self.network, state, images, labels, input_scale=scale)
        return {"relearn_epochs": np.array(epochs), "perturbed_accuracy": accuracy}


def _examples(path: Path, network: Mapping[str, Any], device: str) -> Examples:
    if network.get("task", IMAGES) != IMAGES:
        padding_id = int(network["padding_id"])
        return AnswerExamples(StoredAnswers.read(path).answers, padding_id, torch.device(device))
    stored = StoredSet.read(path)
    return ImageExamples(to_inputs(stored.images, network).to(device), stored.labels.to(device))


def probed_references(
    probes: SplitProbes,
    *,
    retrained: Sequence[State],
    oracle: Sequence[State],
    original: State,
    on_model: Callable[[], None] = lambda: None,
) -> dict[str, Arrays]:
    """Return the arrays of level 4 of the references by side, and of the split. on_model: called for each model."""
    sides = {"retrained": (retrained, retrained), "original": ([original], retrained)}
    if oracle:
        sides["oracle"] = oracle, retrained[: len(oracle)]
    found = {side: probes.arrays(*models, on_model=on_model) for side, models in sides.items()}
    of_images = isinstance(probes.forget, ImageExamples)
    return found | ({"shared": {"perturbation_radii": np.array(RADII)}} if of_images else {})


def probed_split(split_dir: Path, unlearned: Sequence[State]) -> dict[str, Arrays]:
    """Return the arrays of level 4 by side: of k unlearned models, and of up to k of each reference that is stored.

    Raises InvalidMetricInput if it stores no retrained models.
    """
    probes = SplitProbes.load(split_dir)
    retrained, oracle = (stored_models(split_dir, kind, len(unlearned)) for kind in ("retrained", "oracle"))
    if not retrained:
        raise InvalidMetricInput(
            f"{split_dir} stores no retrained models, only their outputs: prepare it again with `lethe prepare`"
        )
    found = probed_references(probes, retrained=retrained, oracle=oracle, original=probes.original)
    return found | {"unlearned": probes.arrays(unlearned[: len(retrained)], retrained)}


def stored_models(split_dir: Path, kind: str, n_models: int) -> list[State]:
    """Return the first models of a set whose weights the split stores, at most n_models; none if it stores none.

    Raises DamagedSplit if a file that is read is not what was prepared.
    """

    def checked() -> Iterable[Path]:
        for name in model_files(Manifest.read(split_dir), kind):
            require_whole(split_dir, only=(name,))
            yield split_dir / name

    return first_models(checked(), n_models)


def model_files(manifest: Manifest, kind: str) -> list[str]:
    """Return the files of a set's weights, in the order of the models."""
    return sorted(path for path in manifest.files if path.startswith(f"hidden/{kind}/models-"))


def first_models(files: Iterable[Path], n_models: int) -> list[State]:
    """Return the first models in files of stacked ones, at most n_models. No file is asked for once there are so many.

    files: each tensor has the models along its first axis.
    """
    found: list[State] = []
    for path in files if n_models else ():
        with safe_open(path, framework="pt") as stacked:
            names = list(stacked.keys())
            slices = {name: stacked.get_slice(name) for name in names}
            n_here = min(n_models - len(found), slices[names[0]].get_shape()[0])
            found += [{name: slices[name][index].clone() for name in names} for index in range(n_here)]
        if len(found) >= n_models:
            break
    return found


def _repeatable(device: torch.device) -> ExitStack:
    """Return the context in which a probe gives the same numbers every time: the evaluator's, and for training."""
    with ExitStack() as stack:
        stack.enter_context(one_thread(device))
        stack.enter_context(zero_for_denormals(device))
        stack.enter_context(device_arithmetic("float32", device))
        stack.enter_context(repeatable_attention(device))
        return stack.pop_all()
