"""Many models of one job: the way of training that suits the network and the device.

Many small networks are trained at once: their weights are stacked, and each layer is one batched or grouped kernel.
Same seeds, same order of images and same arithmetic as the plain loop, up to the rounding of a product's sum. The
gradients of perceptrons are written out: recording operations in order to find them takes longer than they do.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.competition.file import Training
from lethe.device import torch_generator
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.cuda_graph_training import can_graph, train_graphed
from lethe.training.trainer import (
    Job,
    OnEpoch,
    OnNote,
    State,
    TrainingJob,
    class_weights,
    learning_rate,
    make_optimizer,
    set_learning_rate,
    split_batches,
    stack_states,
    untrained,
)

ENSEMBLE_SIZE = 64  # always this many side by side, so that a model's bits do not depend on its company
GROUPED_PIXELS = 256
STACKED_BYTES = 16 * 2**20

TakeStep = Callable[[Tensor, Tensor, float], None]  # images [models, batch, C, H, W], shares [models, batch, classes]


def can_stack(job: TrainingJob) -> bool:
    """Say whether this network and recipe can be trained stacked, and whether that pays.

    Grouped convolutions are faster than a loop on small images only, and stacked weights that leave the cache are
    slower than one model's after another.
    """
    return job.images.form == "inputs on the device" and stacks_well(job.network, job.recipe, device=job.device.type)


def stacks_well(network: Mapping[str, Any], recipe: Training, *, device: str) -> bool:
    """Say the same of a network and recipe whose data is not at hand."""
    name = network["name"]
    return (
        (name == "mlp" or (name == "small_cnn" and prod(network["input_shape"][1:]) <= GROUPED_PIXELS))
        and recipe.augmentation == "none"
        and recipe.mixing == "none"
        and recipe.precision == "float32"
        and device == "cpu"
        and ENSEMBLE_SIZE * model_bytes(network) <= STACKED_BYTES
    )


def model_bytes(network: Mapping[str, Any]) -> int:
    return sum(value.nbytes for value in untrained(network, 0).state_dict().values())


def train_stacked(job: TrainingJob, seeds: Sequence[int], *, on_epoch: OnEpoch | None = None) -> State:
    """Return the state_dicts of all models, each tensor stacked: [models, ...]."""
    parts = []
    for start in range(0, len(seeds), ENSEMBLE_SIZE):
        wanted = list(seeds[start : start + ENSEMBLE_SIZE])
        padded = wanted + [wanted[-1]] * (ENSEMBLE_SIZE - len(wanted))
        state = _train_ensemble(job, padded, on_epoch=on_epoch, n_wanted=len(wanted))
        parts.append({name: tensor[: len(wanted)] for name, tensor in state.items()})
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _train_ensemble(job: TrainingJob, seeds: Sequence[int], *, on_epoch: OnEpoch | None, n_wanted: int) -> State:
    states = [untrained(job.network, seed).state_dict() for seed in seeds]
    state = {name: nn.Parameter(torch.stack([each[name] for each in states])) for name in states[0]}
    generators = [torch_generator(seed) for seed in seeds]
    take_step = (_mlp_steps if job.network["name"] == "mlp" else _small_cnn_steps)(state, job.recipe)
    targets, weights = _targets(job)
    for epoch in range(job.recipe.epochs):
        orders = torch.stack([torch.randperm(len(job.labels), generator=generator) for generator in generators])
        for number, batch in enumerate(split_batches(orders, job.recipe.batch_size)):
            step = epoch * job.steps_per_epoch + number
            rate = learning_rate(job.recipe, step=step, steps_per_epoch=job.steps_per_epoch)
            take_step(job.images.images[batch], targets[batch] / weights[batch].sum(dim=1).view(-1, 1, 1), rate)
        if on_epoch:
            on_epoch(n_wanted)
    return {name: parameter.detach() for name, parameter in state.items()}


def _targets(job: TrainingJob) -> tuple[Tensor, Tensor]:
    """Return the weight of each class in each image's loss [images, classes], and each image's in the mean [images]."""
    of_classes = class_weights(job.recipe, job.labels, job.n_classes)
    if of_classes is None:
        of_classes = torch.ones(job.n_classes)
    smoothing = job.recipe.label_smoothing
    labels = functional.one_hot(job.labels, job.n_classes)
    return of_classes * (labels * (1 - smoothing) + smoothing / job.n_classes), of_classes[job.labels]


def _mlp_steps(state: dict[str, nn.Parameter], recipe: Training) -> TakeStep:
    """Return what takes one step of the models. SGD's momentum is where the products of the gradients are summed."""
    layers = [name.removesuffix(".weight") for name in state if name.endswith(".weight")]
    optimizer = None if recipe.optimizer == "sgd" else make_optimizer(recipe, state.values())
    momentum = 0.0 if optimizer else recipe.momentum
    for parameter in state.values():
        parameter.grad = torch.zeros_like(parameter)

    @torch.no_grad()
    def take_step(images: Tensor, shares: Tensor, rate: float) -> None:
        inputs = [images.flatten(2)]
        for layer in layers[:-1]:
            inputs.append(_linear(state, layer, inputs[-1]).relu_())
        probabilities = _linear(state, layers[-1], inputs[-1]).softmax(dim=2)
        error = probabilities.mul_(shares.sum(dim=2, keepdim=True)).sub_(shares)
        for layer, x in zip(reversed(layers), reversed(inputs), strict=True):
            weight, bias = state[f"{layer}.weight"], state[f"{layer}.bias"]
            cast(Tensor, weight.grad).baddbmm_(error.transpose(1, 2), x, beta=momentum)
            cast(Tensor, bias.grad).mul_(momentum).add_(error.sum(dim=1))
            if layer != layers[0]:
                error = torch.bmm(error, weight).mul_(x.sign())  # x: of ReLU, 0 or above
        if optimizer:
            set_learning_rate(optimizer, rate)
            optimizer.step()
            return
        for parameter in state.values():
            gradient = cast(Tensor, parameter.grad)
            if recipe.weight_decay:
                gradient.add_(parameter, alpha=recipe.weight_decay)
            parameter.add_(gradient, alpha=-rate)

    return take_step


def _small_cnn_steps(state: dict[str, nn.Parameter], recipe: Training) -> TakeStep:
    """Return what takes one step of small CNNs."""
    optimizer = make_optimizer(recipe, state.values())

    def take_step(images: Tensor, shares: Tensor, rate: float) -> None:
        set_learning_rate(optimizer, rate)
        optimizer.zero_grad(set_to_none=True)
        logits = _small_cnn_forward(state, images)
        loss = functional.cross_entropy(logits.flatten(0, 1), shares.flatten(0, 1), reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return take_step


def _small_cnn_forward(state: dict[str, nn.Parameter], images: Tensor) -> Tensor:
    """Return logits [models, batch, classes]: each model's channels are a group of one wide convolution."""
    n_models, n_images = images.shape[:2]
    x = images.transpose(0, 1).flatten(1, 2)
    for name in [name for name in state if name.startswith("convolutions.") and name.endswith(".weight")]:
        weight, bias = state[name], state[f"{name.removesuffix('.weight')}.bias"]
        x = functional.relu(functional.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=1, groups=n_models))
        if min(x.shape[-2:]) >= 2:
            x = functional.max_pool2d(x, 2)
    features = x.mean(dim=(2, 3)).view(n_images, n_models, -1).transpose(0, 1)
    return _linear(state, "classifier", features)


def _linear(state: dict[str, nn.Parameter], layer: str, x: Tensor) -> Tensor:
    weight, bias = state[f"{layer}.weight"], state[f"{layer}.bias"]
    return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))


def train_models(
    job: TrainingJob,
    seeds: Mapping[int, int],
    *,
    checkpoints: TrainingCheckpoints | None = None,
    on_epoch: OnEpoch | None = None,
    on_note: OnNote | None = None,
) -> State:
    """Return the state_dicts of all models, each tensor stacked [models, ...] in the order of `seeds`.

    seeds: index of a model -> its seed. checkpoints: where models in training are kept; stacked perceptrons, which
    take a second, are not.
    """
    if can_stack(job):
        return train_stacked(job, list(seeds.values()), on_epoch=on_epoch)
    if can_graph(job):
        return train_graphed(job, seeds, checkpoints=checkpoints, on_epoch=on_epoch, on_note=on_note)
    return train_in_turn(job, seeds, checkpoints=checkpoints, on_epoch=on_epoch)


def train_in_turn(
    job: Job,
    seeds: Mapping[int, int],
    *,
    checkpoints: TrainingCheckpoints | None = None,
    on_epoch: OnEpoch | None = None,
) -> State:
    """Train one model after the other by the plain loop."""
    return stack_states(
        [train_or_resume(job, index, seed, checkpoints=checkpoints, on_epoch=on_epoch) for index, seed in seeds.items()]
    )


def train_or_resume(
    job: Job, index: int, seed: int, *, checkpoints: TrainingCheckpoints | None = None, on_epoch: OnEpoch | None = None
) -> State:
    """Return one trained model, going on from its last kept epoch."""
    kept = checkpoints.finished(index) if checkpoints else None
    if kept is not None:
        _tell(on_epoch, job.recipe.epochs)
        return kept
    training = job.start(seed)
    if checkpoints:
        checkpoints.resume(training, index)
        _tell(on_epoch, training.epoch)
    while training.epoch < job.recipe.epochs:
        training.run_epoch()
        if checkpoints:
            checkpoints.after_epoch(training, index)
        _tell(on_epoch, 1)
    state = training.state()
    if checkpoints:
        checkpoints.model_done(index, state)
    return state


def _tell(on_epoch: OnEpoch | None, n_epochs: int) -> None:
    if on_epoch and n_epochs:
        on_epoch(n_epochs)
