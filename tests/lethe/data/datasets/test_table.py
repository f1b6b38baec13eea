"""Tables as a dataset, what is wrong with one by name; and that nothing outside the configured folders is read."""

from pathlib import Path

import numpy as np
import pytest
import torch

import lethe
from lethe.competition.file import Dataset
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.datasets.registry import datasets_below, open_dataset
from lethe.data.errors import InvalidDataset
from lethe.metrics.core.input_warnings import InputWarning
from lethe.networks.builders import to_inputs
from lethe.preparation.file_check import check_preparation
from lethe.preparation.prepare import prepare_split

CSV = "age,work,who,income\n39,State,a,<=50K\n50,Private,b,>50K\n38,Private,b,<=50K\n"


def load(**options: object) -> ImageDataset:
    return open_dataset(Dataset(name="table", options=options))


def test_csv_gives_numbers_and_a_feature_for_each_word(tmp_path: Path) -> None:
    (tmp_path / "adult.csv").write_text(CSV)
    dataset = load(root=str(tmp_path), file="adult.csv", label="income", person="who", standardise=False)
    assert dataset.images[:, :, 0, 0].tolist() == [[39, 0, 1], [50, 1, 0], [38, 1, 0]]
    assert dataset.labels.tolist() == [0, 1, 0]
    assert dataset.class_names == ("<=50K", ">50K")
    assert dataset.persons.tolist() == [0, 1, 1]
    assert dataset.input_shape == (3, 1, 1)


def test_network_sees_standardised_features(tmp_path: Path) -> None:
    features = np.array([[1.0, 5.0, 1e-3], [2.0, 5.0, 2e-3], [6.0, 5.0, 4e-3]])
    np.savez(tmp_path / "t.npz", features=features, labels=np.array([0, 1, 1]), persons=np.array([7, 7, 9]))
    dataset = load(root=str(tmp_path), file="t.npz")
    network = {"input_scale": dataset.input_scale, "input_shift": dataset.input_shift}
    seen = to_inputs(torch.from_numpy(dataset.images), network)[:, :, 0, 0]
    np.testing.assert_allclose(seen.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(seen.std(0, correction=0), [1, 0, 1], rtol=1e-5)
    assert dataset.persons.tolist() == [0, 0, 1]


def test_left_out_columns_are_no_features(tmp_path: Path) -> None:
    (tmp_path / "adult.csv").write_text(CSV)
    dataset = load(root=str(tmp_path), file="adult.csv", label="income", leave_out=["who", "work"])
    assert dataset.input_shape == (1, 1, 1)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (CSV, {"label": "pay"}, "has no column 'pay'; it has age, work, who, income"),
        (CSV, {"label": "income", "leave_out": ["sex"]}, "has no column 'sex'"),
        ("age,income\n39,1\n50\n", {"label": "income"}, "line 3 has 1 cells for 2 names"),
        ("age,income\n39,1\n,0\n", {"label": "income"}, "line 3 has no value in column 'age'"),
        ("age,age\n39,1\n", {"label": "age"}, "line of names, each once"),
        ("income\n1\n0\n", {"label": "income"}, "no column of features"),
        ("age,income\n1e39,1\n2,0\n", {"label": "income"}, r"row 1, feature 1 is 1e\+39"),
        ("age,income\nnan,1\n2,0\n", {"label": "income"}, "row 1, feature 1 is nan"),
        ('age,income\n"39,1\n', {"label": "income"}, "cannot be read as CSV"),
        ("", {"label": "income"}, "line of names"),
    ],
)
def test_csv_that_does_not_fit_is_named(text: str, options: dict, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InvalidDataset, match=message):
        load(root=str(tmp_path), file="t.csv", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "name a file"),
        ({"sklearn": "wine", "root": ".", "file": "t.csv"}, "one of the two"),
        ({"sklearn": "boston"}, "breast_cancer"),
        ({"root": ".", "file": "../t.csv"}, "dataset.options.file"),
        ({"root": ".", "file": "t.parquet"}, "dataset.options.file"),
        ({"root": "nowhere", "file": "t.csv"}, "does not exist"),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict, message: str) -> None:
    with pytest.raises(InvalidDataset, match=message):
        load(**options)


def test_npz_without_features_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", labels=np.array([0, 1]))
    with pytest.raises(InvalidDataset, match="`features` must be numbers with 2 axes, found nothing"):
        load(root=str(tmp_path), file="t.npz")


def patients(make_competition, **changes: object):
    settings = {"splits": {"train_size": 300}, "training": {"epochs": 6}, **changes}
    return make_competition(**settings, dataset=Dataset(name="table", options={"sklearn": "breast_cancer"}))


def test_split_of_a_table_is_prepared_unlearned_and_scored(make_competition, quick_children, tmp_path: Path) -> None:
    prepare_split(patients(make_competition), "public", tmp_path / "split")
    split = lethe.Split.load(tmp_path / "split")
    forget = split.examples("forget")
    assert forget["images"].dtype == np.float32
    assert forget["images"].shape[1:] == (30, 1, 1)
    assert split.outputs("original").test_accuracy[0] > 0.8
    models = lethe.methods.run("finetune", split, runs=split.n_models, EPOCHS=1)
    with pytest.warns(InputWarning, match="5 models"):
        assert 0 <= lethe.evaluate(models, split=split, metrics="f")["f"].result.value <= 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"training": {"augmentation": "flip"}}, "training.augmentation 'flip' is for pictures"),
        ({"training": {"mixing": "cutmix"}}, "training.mixing 'cutmix'"),
    ],
)
def test_what_is_for_pictures_is_refused(changes: dict, named: str, make_competition) -> None:
    with pytest.raises(InvalidDataset, match=named):
        check_preparation(patients(make_competition, **changes))


def test_archive_that_unpacks_to_more_than_a_file_may_hold_is_refused(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "t.npz", features=np.zeros((3000, 100)), labels=np.arange(3000) % 2)
    monkeypatch.setattr("lethe.data.datasets.table.MAX_BYTES", 100_000)
    assert (tmp_path / "t.npz").stat().st_size < 100_000
    with pytest.raises(InvalidDataset, match=r"t\.npz unpacks to 2,4\d\d,\d{3} bytes; at most 100,000 are read"):
        open_dataset(Dataset(name="table", options={"root": str(tmp_path), "file": "t.npz"}))


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Two folders for datasets, the second with one; beside them, a file of the host's."""
    found = [tmp_path / "a", tmp_path / "b"]
    mine = found[1] / "mine"
    mine.mkdir(parents=True)
    found[0].mkdir()
    np.save(mine / "images.npy", np.zeros((4, 8, 8), np.uint8))
    np.save(mine / "labels.npy", np.array([0, 1, 0, 1]))
    (tmp_path / "credentials.json").write_text('{"password": "of the administrator"}')
    return found


def opened(name: str, roots: list[Path], **options: str) -> int:
    with datasets_below(roots):
        return len(open_dataset(Dataset(name=name, options=options)))


def test_relative_root_is_looked_up_in_each_folder(roots: list[Path]) -> None:
    assert opened("numpy", roots, root="mine") == 4


def test_administrators_absolute_root_is_read_as_it_stands(roots: list[Path]) -> None:
    assert opened("numpy", [roots[0]], root=str(roots[1] / "mine")) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"root": ".."},
        {"root": "mine/../.."},
        {"root": "mine", "table": "../../credentials.json"},
        {"root": "mine", "table": "/etc/passwd.csv"},
        {"root": "mine", "table": "credentials.json"},
        {"root": "mine", "cache": "elsewhere"},
        {"root": "none"},
    ],
)
def test_path_that_leaves_the_folders_is_refused(roots: list[Path], options: dict[str, str]) -> None:
    with pytest.raises(InvalidDataset) as caught:
        opened("folder", roots, **options)
    assert "password" not in caught.value.detail


@pytest.mark.parametrize("inside", ["", "mine/persons.npy", "mine/deep"])
def test_link_that_leaves_the_folders_is_refused(roots: list[Path], inside: str) -> None:
    link = roots[1] / (inside or "linked")
    link.symlink_to(roots[1].parent / "credentials.json" if inside else roots[1].parent)
    with pytest.raises(InvalidDataset, match="leads out of the folders"):
        opened("numpy", roots, root="mine" if inside else "linked")


def test_link_into_another_folder_is_followed(roots: list[Path]) -> None:
    (roots[0] / "linked").symlink_to(roots[1] / "mine")
    assert opened("numpy", roots, root="linked") == 4


def test_text_that_is_no_table_is_not_quoted(roots: list[Path]) -> None:
    (roots[1] / "mine" / "x.csv").write_text('{"password": "of the administrator"}\n1\n')
    with pytest.raises(InvalidDataset, match="no column 'path'") as caught:
        opened("folder", roots, root="mine", table="x.csv")
    assert "administrator" not in caught.value.detail
