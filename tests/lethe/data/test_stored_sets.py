"""Sets and files of a split on disk, its seeds, and images that stay on the host."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lethe.competition.file import Training
from lethe.data import files, stored_sets
from lethe.data.datasets.faces import open_faces
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import DamagedSplit, SplitNotPrepared
from lethe.data.files import read_json, read_tensors, write_tensors, write_text
from lethe.data.forget_sets import cut_dataset
from lethe.data.seeds import derive_seed, derive_seeds
from lethe.data.stored_sets import (
    SET_PATHS,
    ImageBatches,
    StoredSet,
    attack_form,
    read_true_labels,
    streamed,
    write_sets,
    write_true_labels,
)
from lethe.device import one_thread
from lethe.training.many_models import train_in_turn
from lethe.training.trainer import TrainingJob


@pytest.fixture(scope="module")
def faces() -> ImageDataset:
    return open_faces({"persons": 12, "images_per_person": 2, "size": 16})


def test_a_set_keeps_its_ages(faces: ImageDataset, tmp_path: Path) -> None:
    indices = np.array([1, 4, 7])
    StoredSet.cut_from(faces, indices, faces.labels).write(tmp_path / "set.safetensors")
    stored = StoredSet.read(tmp_path / "set.safetensors")
    assert stored.ages is not None
    assert stored.ages.tolist() == faces.columns["age"][indices].tolist()
    part = stored.part(1, 3).ages
    assert part is not None
    assert part.tolist() == stored.ages[1:3].tolist()


@pytest.mark.parametrize("ages", [None, np.array(["young"]), np.array([np.nan])], ids=["none", "names", "unknown"])
def test_a_set_without_ages_in_years_has_none(faces, tmp_path, ages):
    columns = {} if ages is None else {"age": np.repeat(ages, len(faces))}
    StoredSet.cut_from(replace(faces, columns=columns), np.arange(3), faces.labels).write(tmp_path / "set.safetensors")
    assert StoredSet.read(tmp_path / "set.safetensors").ages is None


def test_only_forget_images_of_a_backdoor_have_its_trigger(faces, tmp_path, make_competition):
    faces = replace(faces, labels=np.arange(len(faces)) % 2, n_classes=2)
    splits = {"train_size": None, "forget": {"by": "backdoor", "classes": [0], "fraction": 0.2}}
    cut = cut_dataset(faces, make_competition(splits=splits), "public")
    write_sets(tmp_path, faces, cut)
    write_true_labels(tmp_path, faces, cut)
    for name, indices in cut.sets():
        expected = faces.images[indices].copy()
        if name == "forget":
            expected[:, :, -2:, -2:] = 255
        assert np.array_equal(StoredSet.read(tmp_path / SET_PATHS[name]).images.numpy(), expected), name
    true_labels = read_true_labels(tmp_path)
    assert true_labels is not None
    assert 0 not in true_labels
    assert set(StoredSet.read(tmp_path / SET_PATHS["forget"]).labels.tolist()) == {0}


def test_tied_tensors_are_written_as_two(tmp_path: Path) -> None:
    tied = torch.arange(4.0)
    write_tensors(tmp_path / "x.safetensors", {"a": tied, "b": tied, "c": tied[:2]})
    read = load_file(tmp_path / "x.safetensors")
    assert read["a"].tolist() == read["b"].tolist() == [0, 1, 2, 3]
    assert read["c"].tolist() == [0, 1]


def test_a_write_cut_off_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.zeros(3)})

    def half_a_file(_tensors: object, part: Path, **_: object) -> None:
        part.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(files, "save_file", half_a_file)
    with pytest.raises(OSError, match="no space"):
        write_tensors(path, {"a": torch.ones(3)})
    assert read_tensors(path)["a"].tolist() == [0, 0, 0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SplitNotPrepared, match=r"x\.safetensors does not exist"):
        read_tensors(tmp_path / "x.safetensors")
    with pytest.raises(SplitNotPrepared, match=r"x\.json does not exist"):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(DamagedSplit, match=r"x\.safetensors is damaged"):
        read_tensors(tmp_path / "x.safetensors")


def test_damaged_json_is_named(tmp_path: Path) -> None:
    write_text(tmp_path / "x.json", "{")
    with pytest.raises(DamagedSplit, match=r"x\.json is damaged"):
        read_json(tmp_path / "x.json")


def test_seed_is_the_documented_hash() -> None:
    digest = hashlib.sha256(b"digits/public/retrained/3").digest()
    expected = int.from_bytes(digest[:8], "big") >> 1
    assert derive_seed("digits", "public", "retrained", 3) == expected
    assert derive_seeds("digits", "public", "retrained", indices=range(5))[3] == expected


CUDA = torch.device("cuda")
NETWORK = {
    "name": "small_cnn",
    "options": {"widths": [4]},
    "input_shape": [3, 8, 8],
    "n_classes": 3,
    "input_scale": 0.01,
    "input_shift": -1.0,
}


class Lane:
    """A stream: work in the order it was given, done when somebody waits for it, or as soon as it may where `eager`."""

    eager: ClassVar[set[str]] = set()

    def __init__(self, name: str = "copies") -> None:
        self.name, self.work, self.done = name, list[Callable[[bool], bool]](), 0

    def give(self, work: Callable[[bool], bool]) -> None:
        """Take work that, told whether somebody waits for it, says whether it is done."""
        self.work.append(work)
        if self.name in self.eager:
            self.run(is_awaited=False)

    def do(self, work: Callable[[], object]) -> None:
        self.give(lambda _: (work(), True)[1])

    def run(self, until: int | None = None, *, is_awaited: bool = True) -> None:
        while self.done < (len(self.work) if until is None else until) and self.work[self.done](is_awaited):
            self.done += 1

    def wait_event(self, event: "Mark") -> None:
        lane, place = event.lane, event.place

        def passed(is_awaited: bool) -> bool:
            if lane is not None and is_awaited:
                lane.run(place)
            return lane is None or lane.done >= place

        self.give(passed)


class Mark:
    """An event: how far a lane had to be when it was recorded."""

    def __init__(self) -> None:
        self.lane: Lane | None = None
        self.place = 0

    def record(self) -> None:
        self.lane = Machine.current
        self.lane.do(lambda: None)
        self.place = len(self.lane.work)

    def synchronize(self) -> None:
        if self.lane is not None:
            self.lane.run(self.place)


class Machine(TorchFunctionMode):
    """Keeps memory of the device on the host, and gives copies that do not wait to the lane that is current."""

    current = Lane("compute")

    def __init__(self) -> None:
        super().__init__()
        self.gathered = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.empty:
            return func(*args, dtype=kwargs["dtype"])
        if func is Tensor.to and args[1:] == (CUDA,):
            return args[0]
        self.gathered += func is torch.index_select
        if func is Tensor.copy_ and kwargs.get("non_blocking"):
            Machine.current.do(lambda: args[0].copy_(args[1]))
            return args[0]
        return func(*args, **kwargs)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    @contextmanager
    def stream(lane: Lane) -> Iterator[None]:
        before, Machine.current = Machine.current, lane
        try:
            yield
        finally:
            Machine.current = before

    Machine.current = Lane("compute")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Lane())
    monkeypatch.setattr(torch.cuda, "Event", Mark)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Machine.current)
    monkeypatch.setattr(Tensor, "record_stream", lambda *_: None, raising=False)
    with Machine() as standing_in:
        yield standing_in


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("eager", [set(), {"copies"}, {"compute"}, {"copies", "compute"}])
@pytest.mark.parametrize("sizes", [[4], [4, 4, 4, 4, 4], [4, 4, 4, 5], [4, 4, 2]])
def test_batch_is_read_between_its_copy_and_the_next_one(monkeypatch, eager, sizes):
    monkeypatch.setattr(Lane, "eager", eager)
    images = torch.arange(40, dtype=torch.uint8).view(20, 2)
    parts = list(torch.randperm(20, generator=torch.Generator().manual_seed(1))[: sum(sizes)].split(sizes))

    def select_inputs(chosen: Tensor) -> Tensor:
        inputs = torch.full(chosen.shape, -1.0)
        Machine.current.do(lambda: inputs.copy_(chosen))
        return inputs

    read = list(streamed(images, parts, CUDA, select_inputs))
    Machine.current.run()
    assert [inputs.tolist() for inputs in read] == [images[part].tolist() for part in parts]


def test_next_batch_is_copied_while_this_one_is_computed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lane, "eager", {"copies", "compute"})
    images, parts = torch.zeros(20, 2, dtype=torch.uint8), torch.arange(20).split(4)
    assert [machine.gathered for _ in streamed(images, parts, CUDA, torch.clone)] == [2, 3, 4, 5, 5]


def pictures(n_images: int = 70) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n_images, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return images, torch.arange(n_images) % 3


RECIPE = Training(epochs=2, learning_rate=0.05, batch_size=16, augmentation="crop-flip")


def trained(kept: ImageBatches) -> dict[str, Tensor]:
    with one_thread(torch.device("cpu")):
        return train_in_turn(TrainingJob(NETWORK, RECIPE, kept, pictures(len(kept.images))[1]), {0: 5, 1: 6})


@pytest.mark.parametrize("n_images", [64, 65, 70])  # an epoch of full batches, of a joined one, of a smaller one
def test_training_on_streamed_images_gives_the_same_bits(machine, monkeypatch, n_images):
    monkeypatch.setattr(Lane, "eager", {"copies", "compute"})
    images, cpu = pictures(n_images)[0], torch.device("cpu")
    resident = trained(ImageBatches(images, NETWORK, cpu, form="inputs on the device"))
    assert machine.gathered == 0
    others = [
        ImageBatches(images, NETWORK, cpu, form="bytes on the device"),
        ImageBatches(images, NETWORK, cpu, form="streamed"),
        ImageBatches(images, NETWORK, CUDA, form="streamed"),
    ]
    for kept in others:
        models = trained(kept)
        assert all(torch.equal(resident[name], models[name]) for name in resident)
    assert machine.gathered == 2 * RECIPE.epochs * len(range(0, n_images - 1, 16))


def test_images_that_do_not_fit_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = pictures()
    monkeypatch.setattr(stored_sets, "RESIDENT_BYTES", 4 * images.numel())
    fits = TrainingJob.on_device(NETWORK, RECIPE, images, labels, device="cpu")
    assert (fits.images.form, fits.images.images.dtype) == ("inputs on the device", torch.float32)
    monkeypatch.setattr(stored_sets, "RESIDENT_BYTES", 4 * images.numel() - 1)
    streams = TrainingJob.on_device(NETWORK, RECIPE, images, labels, device="cpu")
    assert streams.images.form == "streamed"
    assert streams.images.images.data_ptr() == images.data_ptr()
    assert all(torch.equal(trained(fits.images)[name], value) for name, value in trained(streams.images).items())


@pytest.mark.parametrize(
    ("n_values", "form"),
    [(100, "inputs on the device"), (101, "bytes on the device"), (400, "bytes on the device"), (401, "streamed")],
)
def test_image_form_follows_from_available_gpu_memory(monkeypatch, n_values, form):
    """What torch holds in reserve is as good as free: the models before have just left it."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (600, 4000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 900)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 500)
    assert attack_form(n_values, CUDA) == form


@pytest.mark.gpu
def test_images_streamed_to_a_gpu_are_those_that_lie_there() -> None:
    images, _ = pictures(20_000)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    parts = order.split(256)
    kept = ImageBatches(images, NETWORK, CUDA, form="streamed")
    with torch.cuda.stream(torch.cuda.Stream()):
        came = torch.cat([inputs.clone() for inputs in kept.at(parts, parts)])
        resident = ImageBatches(images, NETWORK, CUDA, form="inputs on the device")
        assert torch.equal(came, resident.images[order.to(CUDA)])
