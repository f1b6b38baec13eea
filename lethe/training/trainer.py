"""Training models of one split: the plain loop, one model after the other, on any network and device.

Model i is a function of (job, its seed) alone: initial weights, order of the images and augmentation come from it.

The recipe of a competition gives optimiser, learning rate, loss weights and augmentation.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.competition.file import CompetitionFile, Training
from lethe.data.errors import UntrainedModel
from lethe.data.seeds import derive_seed
from lethe.data.stored_sets import ImageBatches, attack_form
from lethe.device import autocast, device_arithmetic, global_generators, repeatable_attention, torch_generator
from lethe.networks.builders import build

MIXING_PROBABILITY, MIXING_ALPHA = 0.5, 1.0  # Goel et al. 2023, section 4.3


def make_optimizer(
    recipe: Training, parameters: Iterable[nn.Parameter], *, capturable_on: torch.device | None = None
) -> torch.optim.Optimizer:
    """Return the recipe's optimiser; stacked parameters of many models are stepped as one.

    capturable_on: a CUDA device on which a step is to be captured in a graph; the rate is then a tensor there.
    """
    options: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}
    if capturable_on is not None:
        options |= {"lr": torch.tensor(recipe.learning_rate, device=capturable_on), "fused": True}
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(list(parameters), momentum=recipe.momentum, **options)
    kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    if capturable_on is not None:
        options["capturable"] = True
    return kind(list(parameters), **options)


def learning_rate(recipe: Training, *, step: int, steps_per_epoch: int) -> float:
    """Return the rate of optimiser step `step` (0-based): a warm-up, then constant, cosine to 0, or in steps."""
    epoch = step / steps_per_epoch
    if epoch < recipe.warmup_epochs:
        return recipe.learning_rate * (step + 1) / (recipe.warmup_epochs * steps_per_epoch)
    if recipe.schedule == "cosine":
        progress = (epoch - recipe.warmup_epochs) / (recipe.epochs - recipe.warmup_epochs)
        return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    if recipe.schedule == "step":
        return recipe.learning_rate * recipe.gamma ** sum(epoch >= milestone for milestone in recipe.milestones)
    return recipe.learning_rate


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # in place: a captured step reads this tensor
        else:
            group["lr"] = rate


def class_weights(recipe: Training, labels: Tensor, n_classes: int) -> Tensor | None:
    """Return 1 / (occurrences of the class), or None. Source: Triantafillou et al. 2024, section A.7.1."""
    if recipe.class_weights == "none":
        return None
    counts = torch.bincount(labels, minlength=n_classes).clamp_min(1)
    return counts.reciprocal().float()


def augment(recipe: Training, images: Tensor, generator: torch.Generator) -> Tensor:
    """Return `images` [n, C, H, W] flipped at random, and shifted by up to 4 pixels where the recipe says so."""
    if recipe.augmentation == "none":
        return images
    if recipe.augmentation == "crop-flip":
        images = _shifted(images, generator, padding=4)
    flipped = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(to_device(flipped, images.device).view(-1, 1, 1, 1), images.flip(-1), images)


def mix(recipe: Training, images: Tensor, labels: Tensor, *, n_classes: int) -> tuple[Tensor, Tensor]:
    """Return images and labels, in half of the batches mixed in pairs; labels are then shares [n, classes].

    Draws from torch's global generator. Sources: Yun et al. 2019 (CutMix), Zhang et al. 2018 (MixUp).
    """
    if recipe.mixing == "none" or float(torch.rand(())) >= MIXING_PROBABILITY:
        return images, labels
    from torchvision.transforms import v2  # noqa: PLC0415 - two seconds that most recipes need not pay

    kind = v2.CutMix if recipe.mixing == "cutmix" else v2.MixUp
    mixed: tuple[Tensor, Tensor] = kind(num_classes=n_classes, alpha=MIXING_ALPHA)(images, labels)
    return mixed


def to_device(drawn: Tensor, device: torch.device) -> Tensor:
    """Return what a generator of the host drew, on `device`; on a GPU without waiting for the work before it."""
    if device.type != "cuda":
        return drawn.to(device)
    return drawn.pin_memory().to(device, non_blocking=True)


def _shifted(images: Tensor, generator: torch.Generator, *, padding: int) -> Tensor:
    n, _, height, width = images.shape
    padded = functional.pad(images, (padding, padding, padding, padding))
    offsets = torch.randint(0, 2 * padding + 1, (2, n), generator=generator)
    offsets = to_device(offsets, images.device)
    rows = offsets[0, :, None] + torch.arange(height, device=images.device)
    columns = offsets[1, :, None] + torch.arange(width, device=images.device)
    item = torch.arange(n, device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[item, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


State = dict[str, Tensor]
OnEpoch = Callable[[int], None]  # called with the number of model-epochs just finished
OnNote = Callable[[str], None]  # called with what an organiser should know of how models are trained


class Job(Protocol):
    """What models are trained on, of any kind of task."""

    @property
    def network(self) -> Mapping[str, Any]: ...

    @property
    def recipe(self) -> Training: ...

    @property
    def device(self) -> torch.device: ...

    def start(self, seed: int) -> "EpochTraining":
        """Return the training of one model from its first step."""


@dataclass(frozen=True)
class TrainingJob:
    """What is trained on what.

    images: [n, C, H, W], as float32 inputs on the device where they fit there. labels: int64 [n] on the device.
    """

    network: Mapping[str, Any]
    recipe: Training
    images: ImageBatches
    labels: Tensor

    @classmethod
    def on_device(
        cls, network: Mapping[str, Any], recipe: Training, images: Tensor, labels: Tensor, *, device: str
    ) -> "TrainingJob":
        """Return the job with its uint8 `images` where `device` has space for them, and its labels there."""
        where = torch.device(device)
        kept = ImageBatches(images, network, where, form=attack_form(images.numel(), where))
        return cls(network=network, recipe=recipe, images=kept, labels=labels.to(where))

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the images at `order` (int64 [m], on the host) in batches: positions and float32 inputs on the device.

        Each next one belongs on the stream that computes with it.
        """
        on_device = split_batches(to_device(order, self.device), size)
        inputs = self.images.at(split_batches(order, size), on_device)
        yield from zip(on_device, inputs, strict=True)

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def start(self, seed: int) -> "ModelTraining":
        """Return the training of one model from its first step."""
        return ModelTraining.start(self, seed)

    @property
    def n_classes(self) -> int:
        return int(self.network["n_classes"])

    @property
    def steps_per_epoch(self) -> int:
        n_images, size = len(self.labels), self.recipe.batch_size
        return -(-n_images // size) - (n_images > size and n_images % size == 1)


def split_batches(order: Tensor, size: int) -> list[Tensor]:
    """Return `order` [..., n] in batches of `size`. A last one of a single image joins the batch before it.

    Batch normalisation has no variance of a single value, and would end such an epoch with an error.
    """
    batches = list(torch.split(order, size, dim=-1))
    if size > 1 and len(batches) > 1 and batches[-1].shape[-1] == 1:
        batches[-2:] = [torch.cat(batches[-2:], dim=-1)]
    return batches


def untrained(network: Mapping[str, Any], seed: int) -> nn.Module:
    """Return the network with the initial weights of `seed`; the global generator is left as it was."""
    with global_generators(seed):
        return build(network)


def train_model(job: Job, seed: int) -> State:
    """Return the state_dict of one trained model."""
    training = job.start(seed)
    while training.epoch < job.recipe.epochs:
        training.run_epoch()
    return training.state()


def stack_states(states: Sequence[State]) -> State:
    return {name: torch.stack([state[name].cpu() for state in states]) for name in states[0]}


class EpochTraining:
    """One model in training, stopped between epochs, whatever it learns."""

    def __init__(self, job: Job, seed: int, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.job: Any = job
        self.seed = seed
        self.net = net
        self.optimizer = optimizer
        self.generator = torch_generator(seed)
        self.epoch = 0

    def run_epoch(self) -> None:
        """Train over every example once, in the order that the seed gives for this epoch."""
        raise NotImplementedError

    def state(self) -> State:
        """Return a copy of the model's state_dict."""
        return {name: value.detach().clone() for name, value in self.net.state_dict().items()}

    def snapshot(self) -> dict[str, Tensor]:
        """Return everything that decides how training goes on, as tensors."""
        kept = {f"net/{name}": value for name, value in self.net.state_dict().items()}
        for number, values in self.optimizer.state_dict()["state"].items():
            kept.update({f"optimizer/{number}/{name}": value for name, value in values.items() if value is not None})
        return kept | {"generator": self.generator.get_state(), "epoch": torch.tensor(self.epoch)}

    def restore(self, kept: dict[str, Tensor]) -> None:
        """Go back to a snapshot of the same model."""
        prefix = "net/"
        self.net.load_state_dict({n.removeprefix(prefix): v for n, v in kept.items() if n.startswith(prefix)})
        parameters = [each for group in self.optimizer.param_groups for each in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in kept.items():
            if name.startswith("optimizer/"):
                _, number, field = name.split("/")
                state.setdefault(int(number), {})[field] = _laid_out_as(parameters[int(number)], value)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.generator.set_state(kept["generator"].clone())
        self.epoch = int(kept["epoch"])


class ModelTraining(EpochTraining):
    """One image classifier in training."""

    def __init__(self, job: TrainingJob, seed: int, net: nn.Module) -> None:
        net = net.to(job.device)
        self.channels_last = any(isinstance(module, nn.Conv2d) for module in net.modules())
        if self.channels_last:
            net = net.to(memory_format=torch.channels_last)
        super().__init__(job, seed, net, make_optimizer(job.recipe, net.parameters()))
        self.weights = class_weights(job.recipe, job.labels, job.n_classes)

    @classmethod
    def start(cls, job: TrainingJob, seed: int) -> "ModelTraining":
        return cls(job, seed, untrained(job.network, seed))

    def run_epoch(self) -> None:
        """Train over every image once, in the order that the seed gives for this epoch."""
        self.net.train()
        job = self.job
        order = torch.randperm(len(job.labels), generator=self.generator)
        with global_generators(derive_seed("epoch", self.seed, self.epoch), job.device):
            for number, (index, inputs) in enumerate(job.batches(order, job.recipe.batch_size)):
                step = self.epoch * job.steps_per_epoch + number
                rate = learning_rate(job.recipe, step=step, steps_per_epoch=job.steps_per_epoch)
                set_learning_rate(self.optimizer, rate)
                self.step(index, inputs)
        self.epoch += 1

    def step(self, index: Tensor, inputs: Tensor) -> None:
        """Make one step of the optimiser on the images at `index`, augmented."""
        images = augment(self.job.recipe, inputs, self.generator)
        self.step_on(*mix(self.job.recipe, images, self.job.labels[index], n_classes=self.job.n_classes))

    def step_on(self, images: Tensor, labels: Tensor) -> None:
        """Make one step of the optimiser on these inputs."""
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(images, labels)
        self.optimizer.step()

    def backward(self, images: Tensor, labels: Tensor) -> None:
        """Compute the gradients of the recipe's loss; it is taken in float32 whatever the network computes in."""
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        recipe, device = self.job.recipe, self.job.device
        with device_arithmetic(recipe.precision, device), repeatable_attention(device):
            with autocast(recipe.precision, device):
                logits = self.net(images)
            loss = functional.cross_entropy(
                logits.float(), labels, weight=self.weights, label_smoothing=recipe.label_smoothing
            )
            loss.backward()  # type: ignore[no-untyped-call]


def _laid_out_as(parameter: Tensor, value: Tensor) -> Tensor:
    """Return a copy of what an optimiser keeps of a parameter, in the parameter's own layout.

    Files keep no layout, and a fused step reads parameter, gradient and state side by side as they lie in memory.
    """
    if value.shape != parameter.shape:
        return value.clone()
    return torch.empty_like(parameter, device=value.device, dtype=value.dtype, requires_grad=False).copy_(value)


def training_accuracy(job: TrainingJob, state: State, *, batch_size: int = 512) -> float:
    """Return the accuracy of a model on the images it was trained on."""
    net = build(job.network)
    net.load_state_dict(state)
    net = net.to(job.device).eval()
    with torch.inference_mode():
        right = sum(
            int((net(inputs).argmax(dim=1) == job.labels[index]).sum())
            for index, inputs in job.batches(torch.arange(len(job.labels)), batch_size)
        )
    return right / len(job.labels)


def check_learned(competition: CompetitionFile, model: str, accuracy: float, *, chance: float) -> None:
    """Raise UntrainedModel where `accuracy` on the training examples is below the gate. chance: of guessing."""
    gate = competition.training.min_train_accuracy or min(2 * chance, (1 + chance) / 2)
    if not accuracy >= gate:
        raise UntrainedModel(
            f"{model} reaches an accuracy of {accuracy:.3f} on its own training {competition.task.example}s; at least "
            f"{gate:.3f} is required (training.min_train_accuracy; guessing gives {chance:.3f}): change [training]"
        )
