"""Datasets of pictures: folders and tables, Kaggle's layout, faces with persons, and drawn faces."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lethe.competition.file import Dataset
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.datasets.registry import open_dataset
from lethe.data.errors import InvalidDataset


def paint(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        paint(tmp_path / "pictures" / f"{number}.png", (10 * number, 20, 30), size=(12, 6))
    (tmp_path / "images.csv").write_text(
        "path,label,who,set,age\n"
        "pictures/0.png,dog,ann,train,3\npictures/1.png,cat,bob,train,4\n"
        "pictures/2.png,cat,ann,train,5\npictures/3.png,dog,cyd,test,6\n"
    )
    return tmp_path


def options(folder: Path, **more: object) -> Dataset:
    return Dataset(name="folder", options={"root": str(folder), "cache": str(folder / "cache"), "size": 8, **more})


def test_folder_reads_pictures_labels_persons_and_test_rows(folder: Path) -> None:
    dataset = open_dataset(options(folder, person_column="who", test_column="set", extra_columns=["age"]))
    assert dataset.images.shape == (4, 3, 8, 8)
    assert dataset.images[:, 0, 3, 3].tolist() == [0, 10, 20, 30]
    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [1, 0, 0, 1]
    assert dataset.persons.tolist() == [0, 1, 0, 2]
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False, False, False, True]
    assert dataset.columns["age"].tolist() == [3, 4, 5, 6]


def test_pictures_are_memory_mapped_and_decoded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_dataset(options(folder))
    assert isinstance(first.images, np.memmap)
    monkeypatch.setattr("lethe.data.datasets.image_files.decode_picture", lambda *_, **__: pytest.fail("again"))
    assert np.array_equal(open_dataset(options(folder)).images, first.images)


def test_a_changed_picture_is_decoded_again(folder: Path) -> None:
    open_dataset(options(folder))
    paint(folder / "pictures/0.png", (200, 0, 0), size=(30, 30))
    assert open_dataset(options(folder)).images[0, 0, 0, 0] == 200


def test_grey_pictures_have_one_channel(folder: Path) -> None:
    assert open_dataset(options(folder, channels=1)).input_shape == (1, 8, 8)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("path,label\n../secret.png,a\n", "outside"),
        ("path,label\npictures/9.png,a\n", "does not exist"),
        ("path,klass\npictures/0.png,a\n", "no column 'label': it has path, klass"),
        ("path,label\npictures/0.png,\n", "line 2: column 'label' is empty"),
        ("path,label\n", "no rows"),
        ("path,label\nimages.csv,a\n", "cannot be read as an image"),
        ("path,label\npictures/0.png,a\npictures/0.png,b\n", "path 'pictures/0.png' occurs twice"),
        ("path,label\ndeep.png,a\n", r"deep.png has more than 8 bits a pixel \(mode I;16\)"),
        ("path,label\nbroken.png,a\n", "broken.png cannot be read as an image"),
    ],
)
def test_a_wrong_table_is_named(folder: Path, table: str, message: str) -> None:
    Image.fromarray(np.full((8, 8), 3000, np.uint16)).save(folder / "deep.png")
    whole = (folder / "pictures/0.png").read_bytes()
    (folder / "broken.png").write_bytes(whole[:40] + b"\0" * 30 + whole[70:])
    (folder / "images.csv").write_text(table)
    with pytest.raises(InvalidDataset, match=message):
        open_dataset(options(folder))


def test_names_are_text_and_numbers_are_in_their_order(folder: Path) -> None:
    (folder / "images.csv").write_text(
        "path,label,who,set\npictures/0.png,10,007,TRAIN\npictures/1.png,9,7,val\n"
        "pictures/2.png,9,NA,train\npictures/3.png,10,nan,Test\n"
    )
    dataset = open_dataset(options(folder, person_column="who", test_column="set"))
    assert dataset.class_names == ("9", "10")
    assert dataset.labels.tolist() == [1, 0, 0, 1]
    assert len(set(dataset.persons.tolist())) == 4
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False, False, False, True]


def test_a_set_that_is_neither_test_nor_training_is_named(folder: Path) -> None:
    (folder / "images.csv").write_text("path,label,set\npictures/0.png,a,train\npictures/1.png,b,held-out\n")
    with pytest.raises(InvalidDataset, match="line 3: set is 'held-out', which says neither test nor training"):
        open_dataset(options(folder, test_column="set"))


def test_a_missing_folder_says_what_to_put_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataset, match="Put there: a CSV with columns path, label"):
        open_dataset(options(tmp_path))


@pytest.fixture
def kaggle(tmp_path: Path) -> Path:
    rows = {
        "retain": [("1-0", 0, 20, 7), ("1-1", 3, 40, 8)],
        "forget": [("2-0", 0, 22, 9)],
        "validation": [("2-1", 9, 70, 7)],
    }
    for name, pictures in rows.items():
        lines = ["image_id,age_group,age,person_id", *(",".join(map(str, row)) for row in pictures)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    for number, place in enumerate(("1/0", "1/1", "2/0", "2/1")):
        paint(tmp_path / "images" / f"{place}.png", (number, 0, 0), size=(32, 32))
    return tmp_path


def test_kaggle_layout_is_read_in_the_order_of_its_tables(kaggle: Path) -> None:
    dataset = open_dataset(Dataset(name="kaggle", options={"root": str(kaggle), "cache": str(kaggle / "cache")}))
    assert dataset.images[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert dataset.labels.tolist() == [0, 3, 0, 9]
    assert dataset.persons.tolist() == [0, 1, 2, 0]
    assert dataset.n_classes == 10
    assert (dataset.input_scale, dataset.input_shift) == (1.0, 0.0)


def test_kaggle_refuses_an_image_id_that_is_a_path(kaggle: Path) -> None:
    (kaggle / "forget.csv").write_text("image_id,age_group,age,person_id\n../a-b,0,1,1\n")
    with pytest.raises(InvalidDataset, match="must have the form a-b"):
        open_dataset(Dataset(name="kaggle", options={"root": str(kaggle)}))


def test_folders_name_class_person_and_test_images(tmp_path: Path) -> None:
    for name in ("train/dog/ann/1.png", "train/cat/bob/1.png", "test/cat/ann/2.png"):
        paint(tmp_path / name, (0, 0, 0))
    (tmp_path / "train" / ".DS_Store").write_text("")
    dataset = open_dataset(options(tmp_path, folders=["test", "label", "person"]))
    assert dataset.class_names == ("cat", "dog")
    assert (dataset.labels.tolist(), dataset.persons.tolist()) == ([0, 0, 1], [0, 1, 0])
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [True, False, False]
    with pytest.raises(InvalidDataset, match=r"does not lie in <label>/"):
        open_dataset(options(tmp_path, folders=["label"]))
    with pytest.raises(InvalidDataset, match='must name "label" once'):
        open_dataset(options(tmp_path, folders=["person"]))


def load(name: str, root: Path, **options: Any) -> ImageDataset:
    return open_dataset(Dataset(name=name, options={"root": str(root), "cache": str(root / "cache"), **options}))


def paint_face(path: Path, red: int) -> None:
    paint(path, (red, 0, 0), size=(40, 40))


def test_utkface_takes_age_gender_and_race_from_the_names(tmp_path: Path) -> None:
    for name in (
        "1_0_2_20161219140623097.jpg.chip.jpg",
        "14_1_0_20170103200501005.jpg.chip.jpg",
        "15_1_4_20170104012151914.jpg.chip.jpg",
        "116_1_0_20170120134921760.jpg.chip.jpg",
        "61_1_20170109150557335.jpg.chip.jpg",  # one of the makers' own mistakes: no race
    ):
        paint_face(tmp_path / "UTKFace" / name, 50)
    dataset = load("utkface", tmp_path)
    ages = dataset.columns["age"].tolist()
    assert sorted(ages) == [1, 14, 15, 116]
    assert dict(zip(ages, dataset.labels.tolist(), strict=True)) == {1: 0, 14: 0, 15: 1, 116: 4}
    assert dataset.columns["race"][ages.index(15)] == 4
    assert len(set(dataset.persons.tolist())) == 4


def test_utkface_age_starts_must_ascend_from_zero(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataset, match="must ascend from 0"):
        load("utkface", tmp_path, age_starts=[10, 20])


@pytest.fixture
def surf(tmp_path: Path) -> Path:
    (tmp_path / "Age_Gender.txt").write_text("CLKJ_AS0001 20 M\nCLKJ_AS0002  69 F\nCLKJ_AS0003 25 F\n")
    for person, pictures in (("CLKJ_AS0001", 2), ("CLKJ_AS0002", 1), ("CLKJ_AS0003", 1)):
        for number in range(pictures):
            paint_face(tmp_path / "WBackground" / "b1" / person / "real.rssdk" / "color" / f"{number}.jpg", 100)
    paint_face(tmp_path / "WBackground" / "b1" / "CLKJ_AS0001" / "fake.rssdk" / "color" / "9.jpg", 1)
    return tmp_path


def test_casia_surf_has_ten_age_groups_of_equal_width(surf: Path) -> None:
    dataset = load("casia-surf", surf)
    assert len(dataset) == 4  # the attack image is left out
    assert dataset.labels.tolist() == [0, 0, 9, 1]  # 20 to 70 in steps of 5
    assert dataset.persons.tolist() == [0, 0, 1, 2]
    assert dataset.n_classes == 10
    assert dataset.input_scale == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CLKJ_AS0001 20\n", "line 1: must be 'person age gender'"),
        ("CLKJ_AS0001 20 M\nCLKJ_AS0001 30 M\n", "line 2: person CLKJ_AS0001 occurs twice"),
        ("CLKJ_AS0001 20 M\n", "person 'CLKJ_AS0002', who is not in"),
        ("\n", "is empty"),
    ],
)
def test_casia_surf_names_a_wrong_line(surf: Path, text: str, message: str) -> None:
    (surf / "Age_Gender.txt").write_text(text)
    with pytest.raises(InvalidDataset, match=message):
        load("casia-surf", surf)


@pytest.fixture
def celeba(tmp_path: Path) -> Path:
    (tmp_path / "list_attr_celeba.txt").write_text(
        "3\nMale Smiling Young\n000001.jpg  1 -1  1\n000002.jpg -1  1 -1\n000003.jpg -1 -1 -1\n"
    )
    (tmp_path / "identity_CelebA.txt").write_text("000001.jpg 2880\n000002.jpg 17\n000003.jpg 2880\n")
    (tmp_path / "list_eval_partition.txt").write_text("000001.jpg 0\n000002.jpg 1\n000003.jpg 2\n")
    for number in (1, 2, 3):
        paint_face(tmp_path / "img_align_celeba" / f"00000{number}.jpg", 10 * number)
    return tmp_path


def test_celeba_label_is_the_attributes_as_bits(celeba: Path) -> None:
    dataset = load("celeba", celeba)
    assert dataset.labels.tolist() == [0b011, 0b100, 0]  # Male, Young, Smiling, lowest bit first
    assert dataset.persons.tolist() == [2880, 17, 2880]
    assert dataset.n_classes == 8
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False, False, True]


def test_celeba_names_an_unknown_attribute(celeba: Path) -> None:
    with pytest.raises(InvalidDataset, match="has no attribute 'Blond'"):
        load("celeba", celeba, attributes=["Blond"])


def faces(**options: object) -> ImageDataset:
    return open_dataset(Dataset(name="faces", options={"persons": 40, "images_per_person": 6, **options}))


@pytest.fixture(scope="module")
def drawn() -> ImageDataset:
    return faces()


def test_persons_have_many_pictures_and_one_age_group(drawn: ImageDataset) -> None:
    counts = np.bincount(drawn.persons)
    assert len(counts) == 40
    assert counts.min() >= 3
    assert counts.max() <= 9
    assert all(len(set(drawn.labels[drawn.persons == person])) == 1 for person in range(40))


def test_all_age_groups_occur_and_the_young_are_many() -> None:
    groups = np.bincount(faces(persons=200, images_per_person=1).labels, minlength=10)
    assert groups.min() >= 1
    assert groups[0] > 3 * groups[5:].mean()


def test_same_seed_gives_same_images_for_any_number_of_persons(drawn: ImageDataset) -> None:
    fewer = faces(persons=12)
    assert np.array_equal(fewer.images, drawn.images[: len(fewer)])
    assert not np.array_equal(faces(persons=12, seed=1).images[:3], fewer.images[:3])


def test_images_of_one_person_resemble_each_other_most(drawn: ImageDataset) -> None:
    means = np.array([drawn.images[drawn.persons == p][:, :, 10:22, 10:22].mean(axis=(0, 2, 3)) for p in range(40)])
    own = drawn.images[:, :, 10:22, 10:22].mean(axis=(2, 3))
    to_own = np.linalg.norm(own - means[drawn.persons], axis=1).mean()
    to_others = np.linalg.norm(own[:, None] - means, axis=2).mean()
    assert 2 < to_own < 0.6 * to_others


def test_wrinkles_and_hair_let_the_old_be_told_from_the_young() -> None:
    dataset = faces(persons=120, images_per_person=4, noise=0.0, imbalance=1.0)
    inner = dataset.images[:, :, 8:26, 8:24].astype(float)
    detail = np.abs(np.diff(inner, axis=3)).mean(axis=(1, 2, 3)) / inner.mean(axis=(1, 2, 3))
    assert detail[dataset.labels >= 8].mean() > 1.1 * detail[(dataset.labels >= 2) & (dataset.labels <= 3)].mean()
