"""Evaluation of image classifiers: forward passes over a split's sets, and what `evaluators` asks of a kind of task.

Weights in, confidences and accuracies out, to the same bits every time: the result depends on the weights, the split
and the device kind; not on threads, order or how runs are batched. A CPU pass uses one thread, and the batch size is
fixed for the split (manifest.json).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lethe.data.files import read_json, read_tensors
from lethe.data.stored_sets import SET_PATHS, TRUE_LABELS, Form, ImageBatches, StoredSet, attack_form, read_true_labels
from lethe.device import (
    Precision,
    autocast,
    device_arithmetic,
    global_generators,
    one_thread,
    zero_for_denormals,
)
from lethe.errors import InvalidSubmission
from lethe.evaluation.manifest import NETWORK_PATH, Manifest, require_whole
from lethe.evaluation.model_outputs import ORIGINAL, RANDOM_OUTPUTS, read_integer_buffers
from lethe.evaluation.shard_outputs import CapturedSets, RunOutputs, capture, retain_subset
from lethe.metrics.scoring.arrays import logit_scaled_confidences
from lethe.networks.builders import build
from lethe.runtime.weights_layout import ORIGINAL_MODEL


class NonFiniteOutputs(InvalidSubmission):
    slug, title = "non-finite-outputs", "The unlearned model's outputs are not finite numbers"


class SplitEvaluator:
    """Evaluates unlearned models of one split on its forget, retain and test sets."""

    def __init__(
        self,
        network: Mapping[str, Any],
        sets: Mapping[str, StoredSet],
        *,
        device: str = "cpu",
        batch_size: int = 256,
        precision: Precision = "float32",
        integer_buffers: Mapping[str, Tensor] | None = None,
        levels: Collection[int] = (),
        true_forget_labels: NDArray[np.int64] | None = None,
    ) -> None:
        """integer_buffers: the original model's buffers that are not floating point, for runs without others.

        levels: what is captured of each model. true_forget_labels: where the forget set's own are not the true ones.
        """
        self.network = network
        self.levels = frozenset(levels)
        self._true_forget_labels = true_forget_labels
        self._integer_buffers = dict(integer_buffers or {})
        self.device = torch.device(device)
        self.batch_size = batch_size
        self.precision = precision
        self._net = build(network).eval().requires_grad_(False).to(self.device)
        if precision != "float32":
            keep_last_layer_exact(self._net, int(network["n_classes"]))
        # pooling and convolutions are up to twice as fast in this layout, grey images included
        self._channels_last = any(isinstance(module, nn.Conv2d) for module in self._net.modules())
        if self._channels_last:
            self._net = self._net.to(memory_format=torch.channels_last)
        form = attack_form(sum(stored.images.numel() for stored in sets.values()), self.device)
        self._sets = {name: self._kept(stored, form) for name, stored in sets.items()}

    @classmethod
    def load(cls, split_dir: Path, device: str = "cpu") -> Self:
        """Return the evaluator of a prepared split, having checked the hashes of the files that it reads.

        Raises SplitNotPrepared, or DamagedSplit naming the file.
        """
        paths = {name: SET_PATHS[name] for name in ("forget", "retain", "test")}
        read = (NETWORK_PATH, ORIGINAL, TRUE_LABELS, *paths.values())
        settings = require_whole(split_dir, only=read).evaluation
        return cls(
            read_json(split_dir / NETWORK_PATH),
            {name: StoredSet.read(split_dir / path) for name, path in paths.items()},
            device=device,
            batch_size=settings.batch_size,
            precision=settings.precision,
            integer_buffers=read_integer_buffers(split_dir / ORIGINAL),
            levels=settings.capture,
            true_forget_labels=read_true_labels(split_dir),
        )

    def evaluate(self, weights: bytes, *, integer_buffers: Mapping[str, Tensor] | None = None) -> RunOutputs:
        """Return the outputs of the model in `weights`, one checked safetensors file.

        integer_buffers: those of the run's own original model, where it has one. Such numbers (counters, positions to
        look up) are never the run's: nobody learns them, and a position beyond its table would end the pass, on a GPU
        all that follow it as well. Raises NonFiniteOutputs where a logit is infinite or not a number.
        """
        given = self._integer_buffers if integer_buffers is None else dict(integer_buffers)
        return self.evaluate_state(safetensors.torch.load(weights) | given)

    def evaluate_state(self, state: Mapping[str, Tensor]) -> RunOutputs:
        """Return the outputs of the model with this state_dict."""
        self._net.load_state_dict(state)
        with (
            one_thread(self.device),
            zero_for_denormals(self.device),
            device_arithmetic(self.precision, self.device),
            torch.inference_mode(),
        ):
            forget = self.logits("forget").cpu().numpy()
            if wrong := int((~np.isfinite(forget).all(axis=1)).sum()):
                raise NonFiniteOutputs(
                    f"the outputs for {wrong} of {len(forget)} forget images are infinite or not numbers; all must be "
                    "finite"
                )
            retain_logits, test_logits = self.logits("retain"), self.logits("test")
            retain, test = self._class_hits("retain", retain_logits), self._class_hits("test", test_logits)
        return RunOutputs(
            confidences=logit_scaled_confidences(forget, self._sets["forget"].labels_on_host),
            retain_accuracy=retain.accuracy,
            test_accuracy=test.accuracy,
            class_accuracy=np.stack([retain.of_each_class, test.of_each_class]),
            captured=self._capture(forget, retain_logits, test_logits) if self.levels else {},
        )

    def _capture(self, forget: NDArray[Any], retain: Tensor, test: Tensor) -> dict[str, NDArray[np.generic]]:
        labels = {name: kept.labels_on_host for name, kept in self._sets.items()}
        true_labels = self._true_forget_labels
        sets = CapturedSets(
            forget=forget,
            retain=retain.cpu().numpy(),
            test=test.cpu().numpy(),
            forget_labels=labels["forget"],
            retain_labels=labels["retain"],
            test_labels=labels["test"],
            true_forget_labels=labels["forget"] if true_labels is None else true_labels,
        )
        return capture(self.levels, sets)

    def logits(self, name: str) -> Tensor:
        """Return the loaded model's float32 logits [n, classes] of a set, on the device."""
        return torch.cat([self._forward(inputs) for inputs in self._sets[name].images.in_order(self.batch_size)])

    def random_logits(self, seeds: Collection[int]) -> NDArray[np.float32]:
        """Return the forget set's logits [M, S, classes] of networks that were never trained, one for each seed."""
        rows = []
        for seed in seeds:
            with global_generators(seed):
                self._net.load_state_dict(build(self.network).state_dict())
            with one_thread(self.device), torch.inference_mode():
                rows.append(self.logits("forget").cpu().numpy())
        return np.stack(rows)

    def _kept(self, stored: StoredSet, form: Form) -> "_EvaluationSet":
        memory_format = torch.channels_last if self._channels_last else torch.contiguous_format
        images = ImageBatches(stored.images, self.network, self.device, form=form, memory_format=memory_format)
        return _EvaluationSet(images, stored.labels.to(self.device), stored.labels.numpy())

    def _forward(self, inputs: Tensor) -> Tensor:
        with autocast(self.precision, self.device):
            logits: Tensor = self._net(inputs)
        return logits.float()

    def _class_hits(self, name: str, logits: Tensor) -> "_ClassHits":
        labels = self._sets[name].labels
        hits = torch.bincount(labels[logits.argmax(dim=1) == labels], minlength=logits.shape[1])
        sizes = np.bincount(self._sets[name].labels_on_host, minlength=logits.shape[1])
        return _ClassHits(hits.cpu().numpy(), sizes)


@dataclass(frozen=True)
class _EvaluationSet:
    """One set: its images as inputs in the network's layout, its labels on the device and on the host."""

    images: ImageBatches
    labels: Tensor
    labels_on_host: NDArray[np.int64]


@dataclass(frozen=True)
class _ClassHits:
    """How many images of each class a model got right, and how many there are: int64 [classes] each."""

    hits: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        return int(self.hits.sum()) / int(self.sizes.sum())

    @property
    def of_each_class(self) -> NDArray[np.float32]:
        with np.errstate(invalid="ignore"):
            return (self.hits / self.sizes).astype(np.float32)


def load_original(split_dir: Path) -> dict[str, Tensor]:
    """Return the original model's state_dict."""
    return read_tensors(split_dir / ORIGINAL)


class _Exact(nn.Module):
    """A layer that computes in float32, whatever the layers before it compute in."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False), device_arithmetic("float32", x.device):
            result: Tensor = super().forward(x.float())
            return result


class _ExactLinear(_Exact, nn.Linear): ...


class _ExactConv2d(_Exact, nn.Conv2d):  # ends networks that average a map of each class
    ...


_EXACT: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: _ExactLinear, nn.Conv2d: _ExactConv2d}


def keep_last_layer_exact(net: nn.Module, n_classes: int) -> None:
    """Make the network's last linear layer or convolution compute in float32 whatever the precision of the others.

    Logits in bfloat16 carry 8 bits (TF32: 11), and a confidence is a difference of logits. A module may name its parts
    in any order: the last with an output for each class, or else the last of all.
    """
    layers = [module for module in net.modules() if type(module) in _EXACT]
    layers.sort(key=lambda layer: n_classes in (getattr(layer, "out_features", 0), getattr(layer, "out_channels", 0)))
    if layers:
        layers[-1].__class__ = _EXACT[type(layers[-1])]


load = SplitEvaluator.load


def load_sample(sample_dir: Path) -> SplitEvaluator:
    sets = {name: StoredSet.read(sample_dir / f"{name}.safetensors") for name in ("forget", "retain", "validation")}
    sets["test"] = sets.pop("validation")
    integer_buffers = read_integer_buffers(sample_dir / ORIGINAL_MODEL)
    return SplitEvaluator(read_json(sample_dir / "network.json"), sets, integer_buffers=integer_buffers)


def shared_arrays(split_dir: Path) -> dict[str, NDArray[Any]]:
    sets = {name: StoredSet.read(split_dir / SET_PATHS[name]) for name in ("forget", "retain", "test")}
    labels = {name: stored.labels.numpy() for name, stored in sets.items()}
    sizes = {name: len(values) for name, values in labels.items()}
    kept = retain_subset(sizes["retain"], n_forget=sizes["forget"], n_test=sizes["test"])
    arrays = {
        "forget_labels": labels["forget"],
        "test_labels": labels["test"],
        "retain_labels": labels["retain"][kept],
        "retraining_time_s": np.asarray(Manifest.read(split_dir).retraining_time_s),
    }
    random_outputs = split_dir / RANDOM_OUTPUTS
    if random_outputs.is_file():
        arrays["random_forget_logits"] = read_tensors(random_outputs)["random_forget_logits"].numpy()
    return arrays
