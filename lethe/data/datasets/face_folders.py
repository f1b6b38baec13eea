"""Face collections with their makers' own layouts: UTKFace, CASIA-SURF, CelebA (and MUCAC's labels on it)."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lethe.data.datasets.image_dataset import Adapter, ImageDataset, own_person_each
from lethe.data.datasets.image_files import PictureOptions, decode_pictures, need, number_names
from lethe.data.errors import InvalidDataset
from lethe.text_files import read_text, visible_files

UTK_NAME = re.compile(r"^(\d{1,3})_([01])_([0-4])_(\d+)")


class UtkFaceOptions(PictureOptions):
    age_starts: tuple[int, ...] = Field(default=(0, 15, 25, 40, 60), description="first age of each class, ascending")


def open_utkface(options: Mapping[str, Any]) -> ImageDataset:
    """Return UTKFace by age. Put there: root/**/[age]_[gender]_[race]_[time].jpg; files named otherwise are skipped.

    UTKFace does not name persons: every image is its own.
    """
    parsed = UtkFaceOptions.parse(options)
    starts = parsed.age_starts
    if len(starts) < 2 or list(starts) != sorted(set(starts)) or starts[0] != 0:
        raise InvalidDataset(f"dataset.options.age_starts must ascend from 0, was {list(starts)}")
    need(parsed.root, "the folder of UTKFace's images, [age]_[gender]_[race]_[time].jpg")
    found = [
        (path, match) for path in visible_files(parsed.root) if _is_jpeg(path) and (match := UTK_NAME.match(path.name))
    ]
    if not found:
        raise InvalidDataset(f"{parsed.root} has no UTKFace picture. Put there: [age]_[gender]_[race]_[time].jpg")
    ages, genders, races = (np.array([int(match[group]) for _, match in found], dtype=np.int64) for group in (1, 2, 3))
    return ImageDataset(
        images=decode_pictures([path for path, _ in found], parsed).images,
        labels=np.searchsorted(np.array(starts), ages, side="right") - 1,
        persons=own_person_each(len(found)),
        n_classes=len(starts),
        input_scale=1 / 255,
        class_names=tuple(f"from {start}" for start in starts),
        columns={"age": ages, "gender": genders, "race": races},
    )


class CasiaSurfOptions(PictureOptions):
    groups: int = Field(default=10, ge=2, description="age groups of equal width between the youngest and the oldest")


def open_casia_surf(options: Mapping[str, Any]) -> ImageDataset:
    """Return CASIA-SURF by age group, as the 2023 competition did; the network sees 0..255.

    Put there: root/Age_Gender.txt (lines "person age gender") and
    root/WBackground/*/<person>/real.rssdk/color/*.jpg.
    """
    parsed = CasiaSurfOptions.parse(options)
    ages = _casia_ages(need(parsed.root / "Age_Gender.txt", "CASIA-SURF's table, one line 'person age gender' each"))
    edges = np.linspace(min(ages.values()), max(ages.values()) + 1, parsed.groups + 1)
    folder = need(parsed.root / "WBackground", "CASIA-SURF's folders, */<person>/real.rssdk/color/*.jpg")
    places = sorted(folder.glob("*/*/real.rssdk/color"))
    paths = [path for place in places for path in visible_files(place) if _is_jpeg(path)]
    persons = [path.parts[-4] for path in paths]
    unknown = sorted(set(persons) - set(ages))
    if unknown:
        raise InvalidDataset(f"{folder} has person {unknown[0]!r}, who is not in Age_Gender.txt")
    age = np.array([ages[person] for person in persons], dtype=np.int64)
    return ImageDataset(
        images=decode_pictures(paths, parsed).images,
        labels=np.digitize(age, edges).astype(np.int64) - 1,
        persons=number_names(persons),
        n_classes=parsed.groups,
        class_names=tuple(f"{edges[i]:.0f} to {edges[i + 1]:.0f}" for i in range(parsed.groups)),
        columns={"age": age},
    )


def _is_jpeg(path: Path) -> bool:
    return path.suffix.lower() in (".jpg", ".jpeg")


def _lines(path: Path) -> list[str]:
    try:
        return read_text(path).splitlines()
    except (OSError, ValueError) as error:
        raise InvalidDataset(f"{path} cannot be read: {error}") from error


def _casia_ages(path: Path) -> dict[str, int]:
    ages: dict[str, int] = {}
    for number, line in enumerate(_lines(path), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 3 or not words[1].isdigit():
            raise InvalidDataset(f"{path}, line {number}: must be 'person age gender', was {line[:40]!r}")
        if words[0] in ages:
            raise InvalidDataset(f"{path}, line {number}: person {words[0]} occurs twice")
        ages[words[0]] = int(words[1])
    if not ages:
        raise InvalidDataset(f"{path} is empty")
    return ages


class CelebAOptions(PictureOptions):
    attributes: tuple[str, ...] = Field(
        default=("Male", "Young", "Smiling"), min_length=1, max_length=6, description="k attributes make 2^k classes"
    )


def open_celeba(options: Mapping[str, Any]) -> ImageDataset:
    """Return CelebA; the label is the attributes read as a binary number (MUCAC: gender, age, expression).

    Put there: root/img_align_celeba/*.jpg, list_attr_celeba.txt, identity_CelebA.txt and, where the makers' test set is
    to be kept, list_eval_partition.txt.
    """
    parsed = CelebAOptions.parse(options)
    attributes = _celeba_attributes(
        need(parsed.root / "list_attr_celeba.txt", "CelebA's attributes"), parsed.attributes
    )
    identity = _celeba_numbers(need(parsed.root / "identity_CelebA.txt", "CelebA's identities, 'file number' a line"))
    folder = need(parsed.root / "img_align_celeba", "CelebA's aligned pictures")
    names = sorted(name for name in attributes if "/" not in name and (folder / name).exists())
    missing = [name for name in names if name not in identity]
    if missing:
        raise InvalidDataset(f"{parsed.root / 'identity_CelebA.txt'} does not name {missing[0]}")
    partition_path = parsed.root / "list_eval_partition.txt"
    partition = _celeba_numbers(partition_path) if partition_path.exists() else None
    return ImageDataset(
        images=decode_pictures([folder / name for name in names], parsed).images,
        labels=np.array([attributes[name] for name in names], dtype=np.int64),
        persons=np.array([identity[name] for name in names], dtype=np.int64),
        n_classes=2 ** len(parsed.attributes),
        input_scale=1 / 255,
        is_test=_is_test(names, partition),
    )


def _is_test(names: list[str], partition: dict[str, int] | None) -> NDArray[np.bool_] | None:
    if partition is None:
        return None
    return np.array([partition.get(name) == 2 for name in names])


def _celeba_attributes(path: Path, wanted: tuple[str, ...]) -> dict[str, int]:
    """Return file -> label. The file: a count, a line of names, then 'file -1 1 ...' lines."""
    lines = _lines(path)
    if len(lines) < 3:
        raise InvalidDataset(f"{path} must hold a count, a line of attribute names and one line per image")
    names = lines[1].split()
    for name in wanted:
        if name not in names:
            raise InvalidDataset(f"dataset.options.attributes: {path.name} has no attribute {name!r}")
    places = [names.index(name) + 1 for name in wanted]
    labels = {}
    for number, line in enumerate(lines[2:], start=3):
        words = line.split()
        if len(words) != len(names) + 1:
            raise InvalidDataset(f"{path}, line {number}: {len(words) - 1} attributes, must be {len(names)}")
        labels[words[0]] = sum((words[place] == "1") << bit for bit, place in enumerate(places))
    return labels


def _celeba_numbers(path: Path) -> dict[str, int]:
    numbers = {}
    for number, line in enumerate(_lines(path), start=1):
        words = line.split()
        if len(words) != 2 or not words[1].isdigit():
            raise InvalidDataset(f"{path}, line {number}: must be 'file number', was {line[:40]!r}")
        numbers[words[0]] = int(words[1])
    return numbers


ADAPTERS: dict[str, Adapter] = {"casia-surf": open_casia_surf, "celeba": open_celeba, "utkface": open_utkface}
