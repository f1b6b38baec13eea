from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from lethe.competition.file import Dataset
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.datasets.registry import open_dataset
from lethe.data.errors import InvalidDataset


def load(name: str, root: Path, **options: Any) -> ImageDataset:
    return open_dataset(Dataset(name=name, options={"root": str(root), "cache": str(root / "cache"), **options}))


def paint(path: Path, red: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 40), (red, 0, 0)).save(path, quality=95)


def test_utkface_takes_age_gender_and_race_from_the_names(tmp_path: Path) -> None:
    for name in (
        "1_0_2_20161219140623097.jpg.chip.jpg",
        "14_1_0_20170103200501005.jpg.chip.jpg",
        "15_1_4_20170104012151914.jpg.chip.jpg",
        "116_1_0_20170120134921760.jpg.chip.jpg",
        "61_1_20170109150557335.jpg.chip.jpg",  # one of the makers' own mistakes: no race
    ):
        paint(tmp_path / "UTKFace" / name, 50)
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
            paint(tmp_path / "WBackground" / "b1" / person / "real.rssdk" / "color" / f"{number}.jpg", 100)
    paint(tmp_path / "WBackground" / "b1" / "CLKJ_AS0001" / "fake.rssdk" / "color" / "9.jpg", 1)
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
        paint(tmp_path / "img_align_celeba" / f"00000{number}.jpg", 10 * number)
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


@pytest.mark.parametrize("name", ["utkface", "casia-surf", "celeba"])
def test_nothing_there_says_what_belongs_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidDataset, match="Put there: "):
        load(name, tmp_path / "empty")
