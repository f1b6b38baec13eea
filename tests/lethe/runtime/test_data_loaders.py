import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, WeightedRandomSampler

from lethe.runtime import data_loaders as loaders_module
from lethe.runtime.data_loaders import GuestData, ImageSet, InMemoryDataset, load_data, make_loaders, read_safetensors

SIZES = {"retain": 21, "forget": 5, "validation": 8}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    for number, (name, size) in enumerate(SIZES.items()):
        save_file(
            {
                "images": torch.randint(0, 256, (size, 1, 2, 3), generator=generator, dtype=torch.uint8),
                "labels": torch.arange(size) % 3,
                "ids": torch.arange(size) + 100 * number,
                "persons": torch.arange(size) // 2,
            },
            tmp_path / f"{name}.safetensors",
        )
    save_file({"1.weight": torch.ones(3, 6), "1.bias": torch.zeros(3)}, tmp_path / "original_model.safetensors")
    network = {
        "name": "mlp",
        "options": {"hidden": []},
        "input_shape": [1, 2, 3],
        "n_classes": 4,
        "input_scale": 0.5,
        "input_shift": -1.0,
    }
    (tmp_path / "network.json").write_text(json.dumps(network))
    return tmp_path


@pytest.fixture
def data(data_dir: Path) -> GuestData:
    return load_data(data_dir)


def test_dict_batches_have_the_competitions_keys(data: GuestData) -> None:
    batch = next(iter(make_loaders(data).retain))
    assert list(batch) == ["image", "image_id", "age_group", "age", "person_id"]
    assert batch["image"].shape == (21, 1, 2, 3)
    assert batch["image"].dtype == torch.float32
    assert batch["age_group"].dtype == torch.int64
    assert batch["label"] is batch["age_group"]
    with pytest.raises(KeyError):
        batch["labels"]
    assert isinstance(batch["image_id"][0], str)


def test_tuple_batches_are_inputs_and_targets(data: GuestData) -> None:
    inputs, targets = next(iter(make_loaders(data, style="tuple").forget))
    assert inputs.shape == (5, 1, 2, 3)
    assert sorted(targets.tolist()) == [0, 0, 1, 1, 2]


class Doubled(Dataset[Any]):
    """Another's examples, changed, as entries wrap them."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Any:
        image, label = self.base[index]
        return 2 * image, label


def test_dict_batches_are_pairs_for_code_that_unpacks_them(data: GuestData) -> None:
    loader = make_loaders(data).retain
    torch.manual_seed(1)
    batches = list(loader)
    for read in (
        lambda: [(x, y) for x, y in loader],
        lambda: [(x, y) for _, (x, y) in enumerate(loader)],
        lambda: [(batch[0], batch[-1]) for batch in loader],
        lambda: [(*(x, y),) for x, y in DataLoader(loader.dataset, 64, shuffle=True)],
        lambda: [(x / 2, y) for x, y in DataLoader(Doubled(loader.dataset), 64, shuffle=True)],
    ):
        torch.manual_seed(1)
        pairs: Any = read()
        assert len(pairs) == len(batches)
        for (inputs, targets), batch in zip(pairs, batches, strict=True):
            assert torch.equal(inputs, batch["image"])
            assert torch.equal(targets, batch["age_group"])


def test_dict_batches_stay_dicts_for_all_other_code(data: GuestData) -> None:
    batch = next(iter(make_loaders(data).retain))
    keys = ["image", "image_id", "age_group", "age", "person_id"]
    assert list(batch) == [key for key in batch] == list(batch.keys()) == keys  # noqa: C416 - another instruction
    first, *rest = batch
    assert [first, *rest] == keys
    assert list({**batch}) == list(dict(batch)) == keys
    with pytest.raises(KeyError):
        batch[2]
    with pytest.raises(ValueError, match="values to unpack"):
        _, _, _ = batch


def test_inputs_are_scaled_bytes_of_the_same_example(data: GuestData) -> None:
    stored = data.retain.stored
    for batch in make_loaders(data, batch_size=4).retain:
        for image, name in zip(batch["image"], batch["image_id"], strict=True):
            position = int(name.split("-")[1])
            assert torch.equal(image, stored.images[position].float() * 0.5 - 1.0)


@pytest.mark.parametrize("style", ["dict", "tuple"])
def test_batches_are_those_of_torchs_own_loader(data: GuestData, style: loaders_module.Style) -> None:
    loader = make_loaders(data, style=style, batch_size=4).retain
    torch.manual_seed(2)
    ours = [*loader, *loader]
    after = torch.rand(1)
    general: DataLoader[Any] = DataLoader(loader.dataset, batch_size=4, shuffle=True)
    torch.manual_seed(2)
    theirs = [*general, *general]
    assert len(ours) == len(theirs) == 2 * len(loader) == 12
    assert torch.equal(after, torch.rand(1))
    for left, right in zip(ours, theirs, strict=True):
        if style == "dict":
            assert_same(left, right)
        else:
            assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_all_three_sets_are_shuffled(data: GuestData) -> None:
    loaders = make_loaders(data)
    torch.manual_seed(0)
    for loader in (loaders.retain, loaders.forget, loaders.validation):
        names = [next(iter(loader))["image_id"] for _ in range(6)]
        assert len({tuple(order) for order in names}) > 1


def plain(dataset: Any, indices: Sequence[int]) -> list[dict[str, Any]]:
    return [dict(dataset[i]) for i in indices]


def assert_same(left: Any, right: Any) -> None:
    assert list(left) == list(right)
    for key in left:
        if isinstance(left[key], torch.Tensor):
            assert torch.equal(left[key], right[key])
            assert left[key].dtype == right[key].dtype
        else:
            assert left[key] == right[key]


def test_batched_fetch_equals_default_collation_of_single_examples(data: GuestData) -> None:
    fetched = next(iter(DataLoader(data.retain, batch_size=9)))
    collated = torch.utils.data.default_collate(plain(data.retain, range(9)))
    assert_same(fetched, collated)


@pytest.mark.parametrize("style", ["dict", "tuple"])
def test_rewrapped_datasets_work(data: GuestData, style: loaders_module.Style) -> None:
    loaders = make_loaders(data, style=style)
    both = ConcatDataset([loaders.retain.dataset, loaders.forget.dataset])
    subset = Subset(loaders.retain.dataset, [3, 1, 2])
    sampler = WeightedRandomSampler([1.0] * 26, num_samples=13)

    def count(loader: DataLoader[Any]) -> int:
        return sum(len(batch["age_group"] if style == "dict" else batch[1]) for batch in loader)

    assert count(DataLoader(both, batch_size=6, shuffle=True)) == 26
    assert count(DataLoader(subset, batch_size=2)) == 3
    assert count(DataLoader(both, batch_size=5, sampler=sampler)) == 13
    assert count(DataLoader(loaders.retain.dataset, batch_size=10, drop_last=True)) == 20


def test_subset_is_fetched_in_one_gather(data: GuestData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaders_module.InMemoryDataset, "__getitem__", lambda _self, _i: pytest.fail("one by one"))
    monkeypatch.setattr(
        loaders_module.Batch, "__getitem__", lambda _self, _i: loaders_module.DictSample()
    )  # torch looks at the first sample's type
    batch = next(iter(DataLoader(Subset(data.retain, [4, 2]), batch_size=2)))
    assert batch["age_group"].tolist() == [1, 2]


def test_own_collate_function_sees_single_examples(data: GuestData) -> None:
    loader = DataLoader(data.forget, batch_size=5, collate_fn=lambda batch: [sample["age_group"] for sample in batch])
    assert next(iter(loader)) == [0, 1, 2, 0, 1]


def test_indexing_and_plain_iteration(data: GuestData) -> None:
    assert data.forget[-1]["image_id"] == data.forget[4]["image_id"]
    assert len(list(iter(data.forget))) == 5  # type: ignore[call-overload]
    with pytest.raises(IndexError):
        data.forget[5]


def test_unbatched_loader_gives_single_examples(data: GuestData) -> None:
    sample = next(iter(DataLoader(data.forget, batch_size=None)))
    assert sample["image"].shape == (1, 2, 3)


def test_worker_processes_see_the_same_batches(data: GuestData) -> None:
    ours = next(iter(DataLoader(data.retain, batch_size=7)))
    theirs = next(iter(DataLoader(data.retain, batch_size=7, num_workers=1)))
    assert_same(ours, theirs)


def test_class_counts_are_of_all_training_images(data: GuestData) -> None:
    assert make_loaders(data).class_counts == {"0": 9, "1": 9, "2": 8, "3": 0}


def test_large_sets_are_scaled_batch_by_batch(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = load_data(data_dir).retain.collated(range(21))
    monkeypatch.setattr(loaders_module, "FLOAT_CACHE_BYTES", 0)
    assert_same(load_data(data_dir).retain.collated(range(21)), cached)


def test_read_safetensors_equals_the_library(tmp_path: Path) -> None:
    tensors = {
        "a": torch.randn(3, 2, dtype=torch.float64),
        "b": torch.tensor(7),
        "c": torch.randn(5).half(),
        "d": torch.randint(0, 255, (3,), dtype=torch.uint8),
        "empty": torch.zeros(0, 4),
    }
    save_file(tensors, tmp_path / "x.safetensors", metadata={"k": "v"})
    read = read_safetensors(tmp_path / "x.safetensors")
    assert set(read) == set(tensors)
    assert all(torch.equal(read[name], tensors[name]) and read[name].dtype == tensors[name].dtype for name in tensors)


def test_age_is_the_age_where_the_data_knows_it_and_the_label_elsewhere() -> None:
    numbers = torch.arange(4)
    images = torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
    network = {"name": "mlp", "options": {"hidden": []}, "input_shape": [1, 2, 2], "n_classes": 4}
    network |= {"input_scale": 1.0, "input_shift": 0.0}
    for ages in (None, numbers + 40):
        dataset = InMemoryDataset(ImageSet(images, numbers, numbers, numbers, ages), network)
        wanted = (numbers if ages is None else ages).tolist()
        assert [dataset[i]["age"] for i in range(4)] == wanted
        assert dataset.collated(range(4))["age"].tolist() == wanted
        assert next(dataset.epoch(numbers, 4))["age"].tolist() == wanted
        assert next(dataset.epoch(numbers, 4))["age_group"].tolist() == numbers.tolist()
