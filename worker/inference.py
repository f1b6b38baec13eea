"""Unlearned weights in, confidences and accuracies out: one model at a time, to the same bits every time.

The result depends on the weights, the split and the device kind; not on threads, order or how runs are batched:
a CPU pass uses one thread, and the batch size is fixed for the split (manifest.json).
"""

import gc
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sandbox.guest.networks import build
from server.errors import InvalidSubmission
from worker.scoring.confidences import logit_scaled_confidences
from worker.splits.files import read_json, read_tensors
from worker.splits.image_batches import Form, ImageBatches, form_of
from worker.splits.manifest import NETWORK_PATH, require_whole
from worker.splits.originals import ORIGINAL, read_whole_numbers
from worker.splits.precision import Precision, autocast, device_arithmetic, one_thread, zero_for_denormals
from worker.splits.stored_sets import SET_PATHS, StoredSet


class NonFiniteOutputs(InvalidSubmission):
    slug, title = "non-finite-outputs", "The unlearned model's outputs are not finite numbers"


@dataclass(frozen=True)
class RunOutputs:
    """What one unlearned model scores by, and what organisers see beside it.

    confidences: float64 [S], the statistic h of each forget example. class_accuracy: float32 [2, classes], on the
    retain and on the test set; NaN where a set has no image of the class.
    """

    confidences: NDArray[np.float64]
    retain_accuracy: float
    test_accuracy: float
    class_accuracy: NDArray[np.float32]


@dataclass(frozen=True)
class OriginalSpec:
    """The form that every unlearned model must have: the header of the original's safetensors file, and its size."""

    header: bytes
    n_bytes: int


def original_spec(split_dir: Path) -> OriginalSpec:
    """Return the header (with its 8-byte length) and the size of the original model's file."""
    path = split_dir / "visible" / "original_model.safetensors"
    with path.open("rb") as file:
        length = file.read(8)
        header = length + file.read(int.from_bytes(length, "little"))
    return OriginalSpec(header=header, n_bytes=path.stat().st_size)


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
        whole_numbers: Mapping[str, Tensor] | None = None,
    ) -> None:
        """whole_numbers: the original model's buffers that are not floating point, for runs without others."""
        self.network = network
        self._whole_numbers = dict(whole_numbers or {})
        self.device = torch.device(device)
        self.batch_size = batch_size
        self.precision = precision
        self._net = build(network).eval().requires_grad_(False).to(self.device)
        if precision != "float32":
            keep_last_layer_exact(self._net, int(network["n_classes"]))
        # pooling and convolutions are up to twice as fast in this layout, grey pictures included
        self._channels_last = any(isinstance(module, nn.Conv2d) for module in self._net.modules())
        if self._channels_last:
            self._net = self._net.to(memory_format=torch.channels_last)
        form = form_of(sum(stored.images.numel() for stored in sets.values()), self.device)
        self._sets = {name: self._kept(stored, form) for name, stored in sets.items()}

    @classmethod
    def load(cls, split_dir: Path, device: str = "cpu") -> Self:
        """Return the evaluator of a prepared split, having checked the hashes of the files that it reads.

        Raises SplitNotPrepared, or DamagedSplit naming the file.
        """
        paths = {name: SET_PATHS[name] for name in ("forget", "retain", "test")}
        settings = require_whole(split_dir, only=(NETWORK_PATH, ORIGINAL, *paths.values())).evaluation
        return cls(
            read_json(split_dir / NETWORK_PATH),
            {name: StoredSet.read(split_dir / path) for name, path in paths.items()},
            device=device,
            batch_size=settings.batch_size,
            precision=settings.precision,
            whole_numbers=read_whole_numbers(split_dir / ORIGINAL),
        )

    def evaluate(self, weights: bytes, *, whole_numbers: Mapping[str, Tensor] | None = None) -> RunOutputs:
        """Return the outputs of the model in `weights`, one checked safetensors file.

        whole_numbers: those of the run's own original model, where it has one. Such numbers (counters, positions to
        look up) are never the run's: nobody learns them, and a position beyond its table would end the pass, on a GPU
        all that follow it as well. Raises NonFiniteOutputs where a logit is infinite or not a number.
        """
        given = self._whole_numbers if whole_numbers is None else dict(whole_numbers)
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
            _check_finite(forget)
            retain, test = (self._class_hits(name) for name in ("retain", "test"))
        return RunOutputs(
            confidences=logit_scaled_confidences(forget, self._sets["forget"].labels_on_host),
            retain_accuracy=retain.accuracy,
            test_accuracy=test.accuracy,
            class_accuracy=np.stack([retain.of_each_class, test.of_each_class]),
        )

    def logits(self, name: str) -> Tensor:
        """Return the loaded model's float32 logits [n, classes] of a set, on the device."""
        return torch.cat([self._forward(inputs) for inputs in self._sets[name].images.in_order(self.batch_size)])

    def _kept(self, stored: StoredSet, form: Form) -> "_EvaluationSet":
        memory_format = torch.channels_last if self._channels_last else torch.contiguous_format
        images = ImageBatches(stored.images, self.network, self.device, form=form, memory_format=memory_format)
        return _EvaluationSet(images, stored.labels.to(self.device), stored.labels.numpy())

    def _forward(self, inputs: Tensor) -> Tensor:
        with autocast(self.precision, self.device):
            logits: Tensor = self._net(inputs)
        return logits.float()

    def _class_hits(self, name: str) -> "_ClassHits":
        logits, labels = self.logits(name), self._sets[name].labels
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
    return read_tensors(split_dir / "visible" / "original_model.safetensors")


class BackgroundEvaluator:
    """Evaluates a run's weights while the next run is unlearning: one thread, at most `waiting` models held.

    Results are those of the evaluator itself; order and overlap do not touch their bits.
    """

    def __init__(self, evaluator: SplitEvaluator, *, waiting: int = 2) -> None:
        self._evaluator = evaluator
        self._places = threading.BoundedSemaphore(waiting)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluate")

    def submit(self, weights: bytes, *, whole_numbers: Mapping[str, Tensor] | None = None) -> Future[RunOutputs]:
        """Take what evaluate takes; waits while too many are held. The future raises what evaluate raises."""
        self._places.acquire()
        future = self._thread.submit(self._evaluator.evaluate, weights, whole_numbers=whole_numbers)
        future.add_done_callback(lambda _: self._places.release())
        return future

    def again(self, weights: bytes, *, whole_numbers: Mapping[str, Tensor] | None = None) -> Future[RunOutputs]:
        """Evaluate once more, after what was already taken; the device's memory that nothing uses is free by then."""
        return self._thread.submit(self._evaluate_again, weights, whole_numbers)

    def _evaluate_again(self, weights: bytes, whole_numbers: Mapping[str, Tensor] | None) -> RunOutputs:
        gc.collect()
        if self._evaluator.device.type == "cuda":
            torch.cuda.empty_cache()
        return self._evaluator.evaluate(weights, whole_numbers=whole_numbers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown(cancel_futures=error_type is not None)


class _ExactLinear(nn.Linear):
    """A linear layer that computes in float32, whatever the layers before it compute in."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False), device_arithmetic("float32", x.device):
            return super().forward(x.float())


class _ExactConv2d(nn.Conv2d):
    """The same of a convolution, which ends networks that average a map of each class."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False), device_arithmetic("float32", x.device):
            return super().forward(x.float())


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


def _check_finite(logits: NDArray[Any]) -> None:
    wrong = int((~np.isfinite(logits).all(axis=1)).sum())
    if wrong:
        raise NonFiniteOutputs(
            f"the outputs for {wrong} of {len(logits)} forget images are infinite or not numbers; all must be finite"
        )
