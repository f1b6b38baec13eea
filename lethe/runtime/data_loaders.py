"""The data that a participant's function gets: real DataLoaders over tensors that are already in memory.

`load_data` is called once, before the runs fork; `make_loaders` once in each run, and costs microseconds.
Imports the standard library and torch only.
"""

import dis
import json
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from lethe.networks.builders import to_inputs
from lethe.runtime.weights_layout import ORIGINAL_MODEL

Style = Literal["dict", "tuple"]
BATCH_SIZE = 64
LABEL = "label"
PAIR = ("image", "age_group")  # what an example is where two are wanted
UNPACK = dis.opmap["UNPACK_SEQUENCE"]
IMAGES = "image-classification"
TASK_LOADERS = {"causal-lm": ".answer_loaders"}  # of other tasks: the module with their `load_sets`
FLOAT_CACHE_BYTES = 512 * 2**20  # a set below this is kept as floats, so that a batch is one gather


@dataclass(frozen=True)
class ImageSet:
    """One set as stored: images uint8 [n, C, H, W]; labels, ids, persons and ages int64 [n].

    ages: in years; None where the data knows none, and `age` is the label.
    """

    images: Tensor
    labels: Tensor
    ids: Tensor
    persons: Tensor
    ages: Tensor | None = None

    @property
    def shown_ages(self) -> Tensor:
        """What samples show as `age`."""
        return self.labels if self.ages is None else self.ages


@dataclass(frozen=True)
class GuestData:
    """All that lies in a sandbox's /data."""

    network: Mapping[str, Any]
    original_state: dict[str, Tensor]
    retain: Any  # a dataset with `loader(style=, batch_size=)`: InMemoryDataset of images, or another task's
    forget: Any
    validation: Any
    class_counts: dict[str, int]


@dataclass(frozen=True)
class Loaders:
    """What a run's function is called with. `class_counts`: training images of each class, by its name."""

    retain: DataLoader[Any]
    forget: DataLoader[Any]
    validation: DataLoader[Any]
    class_counts: dict[str, int]


class DictSample(dict[str, Any]):
    """One example, or a batch, with the keys that Kaggle's entries know. `label` is another name of `age_group`.

    Unpacked into two, or read by position, it is the pair of inputs and targets, since it cannot always be seen before
    which of the two the code expects. The type lets a complete batch be collated at once.
    """

    def __missing__(self, key: object) -> Any:
        if key == LABEL:
            return self["age_group"]
        if type(key) is int and -len(PAIR) <= key < len(PAIR):
            return self[PAIR[key]]
        raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        caller = sys._getframe(1)
        code, at = caller.f_code.co_code, caller.f_lasti
        if code[at] == UNPACK and code[at + 1] == len(PAIR):  # `x, y = value`, in whatever statement
            return iter((self["image"], self["age_group"]))
        return super().__iter__()


class TupleSample(tuple[Any, ...]):
    """One example as (input, target)."""

    __slots__ = ()


class InMemoryDataset(Dataset[Any]):
    """Examples as dicts or (input, target) tuples, with batched fetching through `__getitems__`."""

    def __init__(self, images: ImageSet, network: Mapping[str, Any], *, style: Style = "dict") -> None:
        self.stored = images
        self.network = network
        self.style = style
        small = images.images.numel() * 4 <= FLOAT_CACHE_BYTES
        self._inputs = to_inputs(images.images, network) if small else None
        self._labels = images.labels.tolist()
        self._ages = images.shown_ages.tolist()
        self._persons = images.persons.tolist()
        pairs = zip(self._persons, images.ids.tolist(), strict=True)
        self.names = [f"{person}-{image}" for person, image in pairs]

    def __len__(self) -> int:
        return len(self._labels)

    def with_style(self, style: Style) -> "InMemoryDataset":
        """Return a view of the same tensors that shows its examples in `style`."""
        view = object.__new__(InMemoryDataset)
        view.__dict__.update(self.__dict__, style=style)
        return view

    def loader(self, *, style: Style = "dict", batch_size: int | None = None) -> DataLoader[Any]:
        """Return a shuffled loader of these images."""
        return ShuffledLoader(self.with_style(style), batch_size or BATCH_SIZE)

    @torch.no_grad()
    def accuracy(self, net: nn.Module) -> float:
        """Return the share of these images that the network, put into `eval()` mode, classifies correctly."""
        net.eval()
        hits = [net(self.inputs(slice(i, i + 256))).argmax(1) for i in range(0, len(self), 256)]
        return float((torch.cat(hits) == self.stored.labels).float().mean())

    def inputs(self, index: Tensor | slice) -> Tensor:
        """Return the network's float32 inputs of the examples at `index`."""
        if self._inputs is not None:
            return self._inputs[index] if isinstance(index, slice) else self._inputs.index_select(0, index)
        return to_inputs(self.stored.images[index], self.network)

    def __getitem__(self, index: int) -> DictSample | TupleSample:
        position = range(len(self))[index]  # so that -1 works and an IndexError ends a plain for loop
        image = self.inputs(slice(position, position + 1))[0]
        label = self._labels[position]
        if self.style == "tuple":
            return TupleSample((image, label))
        return DictSample(
            image=image,
            image_id=self.names[position],
            age_group=label,
            age=self._ages[position],
            person_id=self._persons[position],
        )

    def __getitems__(self, indices: Sequence[int]) -> "Batch":
        return Batch(self, indices)

    def collated(self, indices: Sequence[int]) -> dict[str, Any] | list[Tensor]:
        """Return what the default collation of these examples gives, made with one gather a tensor."""
        index = torch.as_tensor(indices, dtype=torch.int64)
        image, labels = self.inputs(index), self.stored.labels[index]
        if self.style == "tuple":
            return [image, labels]
        names = self.names
        return DictSample(
            image=image,
            image_id=[names[i] for i in indices],
            age_group=labels,
            age=self.stored.shown_ages[index],
            person_id=self.stored.persons[index],
        )

    def epoch(self, order: Tensor, batch_size: int) -> Iterator[dict[str, Any] | list[Tensor]]:
        """Yield collated batches of the examples in this order."""
        labels = self.stored.labels[order]
        if self.style == "tuple":
            for start in range(0, len(order), batch_size):
                window = slice(start, start + batch_size)
                yield [self.inputs(order[window]), labels[window]]
            return
        ages, persons = self.stored.shown_ages[order], self.stored.persons[order]
        names = list(map(self.names.__getitem__, order.tolist()))
        for start in range(0, len(order), batch_size):
            window = slice(start, start + batch_size)
            yield DictSample(
                image=self.inputs(order[window]),
                image_id=names[window],
                age_group=labels[window],
                age=ages[window],
                person_id=persons[window],
            )


class Batch(Sequence[Any]):
    """Examples chosen but not yet fetched: collated at once, or one by one for a collate_fn of one's own."""

    def __init__(self, dataset: InMemoryDataset, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return [self.dataset[i] for i in self.indices[position]]
        return self.dataset[self.indices[position]]

    def __iter__(self) -> Iterator[Any]:
        return (self.dataset[i] for i in self.indices)


class ShuffledLoader(DataLoader[Any]):
    """A DataLoader over an InMemoryDataset that shuffles, in the main process, faster than the general machinery.

    Same batches in the same order as DataLoader(dataset, batch_size, shuffle=True) under the same seed: it draws from
    torch's generator exactly as that does. Labels are gathered once an epoch, images once a batch.
    """

    def __init__(self, dataset: InMemoryDataset, batch_size: int) -> None:
        super().__init__(dataset, batch_size=batch_size, shuffle=True)
        self._examples = dataset
        self._step = batch_size

    def __iter__(self) -> Any:
        torch.empty((), dtype=torch.int64).random_()  # the general iterator draws its workers' base seed first
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        order = torch.randperm(len(self._examples), generator=torch.Generator().manual_seed(seed))
        return self._examples.epoch(order, self._step)


def _collate(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:  # noqa: ARG001 - torch's call
    if isinstance(batch, Batch):
        return batch.dataset.collated(batch.indices)
    if isinstance(batch[0], DictSample):
        return DictSample(default_collate([dict(sample) for sample in batch]))
    return default_collate([tuple(sample) for sample in batch])


# torch's documented way to teach default_collate a type: loaders that a participant makes are as fast as ours
default_collate_fn_map.update({DictSample: _collate, TupleSample: _collate})


def load_data(data_dir: Path) -> GuestData:
    """Read everything that a sandbox sees (network.json and four safetensors files) into memory."""
    network = json.loads((data_dir / "network.json").read_text(encoding="utf-8"))
    files = {name: read_safetensors(data_dir / f"{name}.safetensors") for name in ("retain", "forget", "validation")}
    task = network.get("task", IMAGES)
    load_sets = _image_sets if task == IMAGES else import_module(TASK_LOADERS[task], __package__).load_sets
    sets: dict[str, Any] = load_sets(files, network)
    return GuestData(
        network=network,
        original_state=read_safetensors(data_dir / ORIGINAL_MODEL),
        class_counts=_class_counts(sets, network) if task == IMAGES else {},
        **sets,
    )


def _image_sets(files: Mapping[str, Mapping[str, Tensor]], network: Mapping[str, Any]) -> "dict[str, InMemoryDataset]":
    required = ("images", "labels", "ids", "persons")
    return {
        name: InMemoryDataset(ImageSet(**{each: tensors[each] for each in required}, ages=tensors.get("ages")), network)
        for name, tensors in files.items()
    }


def _class_counts(sets: "Mapping[str, InMemoryDataset]", network: Mapping[str, Any]) -> dict[str, int]:
    training_labels = torch.cat([sets["retain"].stored.labels, sets["forget"].stored.labels])
    counts = torch.bincount(training_labels, minlength=int(network["n_classes"])).tolist()
    return {str(label): count for label, count in enumerate(counts)}


def make_loaders(data: GuestData | Path, *, style: Style = "dict", batch_size: int | None = None) -> Loaders:
    """Return shuffled loaders of the three sets. batch_size: 64 images, or 16 texts, if it is not given.

    style, of images: "dict" gives image, image_id, age_group (also called label), age, person_id; "tuple" gives
    (inputs, targets). Texts are input_ids, attention_mask, labels.
    """
    if isinstance(data, Path):
        data = load_data(data)
    retain, forget, validation = (
        dataset.loader(style=style, batch_size=batch_size) for dataset in (data.retain, data.forget, data.validation)
    )
    return Loaders(retain=retain, forget=forget, validation=validation, class_counts=dict(data.class_counts))


TORCH_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file that the host wrote (a guest has no safetensors package)."""
    data = bytearray(path.read_bytes())
    (header_size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + header_size])
    start = 8 + header_size
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = TORCH_DTYPES[entry["dtype"]]
        # a copy, so that every tensor is aligned and owns its memory
        flat = (
            torch.frombuffer(data, dtype=torch.uint8, count=end - begin, offset=start + begin) if end > begin else None
        )
        values = torch.empty(0, dtype=dtype) if flat is None else flat.clone().view(dtype)
        tensors[name] = values.reshape(entry["shape"])
    return tensors
