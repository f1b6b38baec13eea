"""Drawn faces: persons with many images each, ten age groups, most of them young.

For tests and demonstrations that need person-disjoint splits and a network with something to memorise, without a
download. Every image is a function of (seed, person, image) alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lethe.data.datasets.image_dataset import Adapter, ImageDataset, Options
from lethe.data.seeds import derive_seed, numpy_generator

GROUPS = 10
Floats = NDArray[np.float32]


class FacesOptions(Options):
    persons: int = Field(default=300, ge=GROUPS, description="the first ten have one age group each")
    images_per_person: int = Field(default=20, ge=1, description="the mean; a person has half to one and a half of it")
    size: int = Field(default=32, ge=16, le=256)
    noise: float = Field(default=0.04, ge=0, le=0.5, description="pixel noise, in 0..1")
    imbalance: float = Field(default=0.65, gt=0, le=1, description="an age group has this share of the one before it")
    seed: int = Field(default=0, ge=0)


@dataclass(frozen=True)
class _Person:
    """What stays the same in all images of a person; lengths in units of half an image."""

    group: int
    age: float
    skin: Floats
    hair: Floats
    width: float
    height: float
    eye_gap: float
    eye_size: float
    eye_colour: Floats
    mouth_width: float
    mouth_drop: float
    nose: float
    hairline: float


def open_faces(options: Mapping[str, Any]) -> ImageDataset:
    """Return the drawn faces; the label is the age group."""
    parsed = FacesOptions.parse(options)
    images, labels, persons, ages = [], [], [], []
    for number in range(parsed.persons):
        generator = numpy_generator(derive_seed("faces", parsed.seed, number))
        person = _draw_person(generator, number, parsed)
        low, high = max(1, parsed.images_per_person // 2), parsed.images_per_person + parsed.images_per_person // 2
        n_images = int(generator.integers(low, high + 1))
        images.append(_draw_pictures(person, n_images, generator, parsed))
        labels += [person.group] * n_images
        persons += [number] * n_images
        ages += [round(person.age)] * n_images
    return ImageDataset(
        images=np.concatenate(images),
        labels=np.array(labels, dtype=np.int64),
        persons=np.array(persons, dtype=np.int64),
        n_classes=GROUPS,
        input_scale=1 / 64,
        input_shift=-2.0,
        class_names=tuple(f"{8 * group} to {8 * group + 7}" for group in range(GROUPS)),
        columns={"age": np.array(ages, dtype=np.int64)},
    )


def _draw_person(generator: np.random.Generator, number: int, options: FacesOptions) -> _Person:
    shares = options.imbalance ** np.arange(GROUPS)
    drawn = int(generator.choice(GROUPS, p=shares / shares.sum()))
    group = number if number < GROUPS else drawn
    age = 8 * group + float(generator.uniform(0, 8))
    grey = float(np.clip((age - 30) / 40, 0, 1)) * float(generator.uniform(0.8, 1.0))
    hair = generator.uniform(0.05, 0.8) * (np.array([1.0, 0.7, 0.4]) + generator.uniform(-0.15, 0.15, 3))
    child = float(np.clip(1 - age / 18, 0, 1))
    uniform = generator.uniform
    return _Person(
        group=group,
        age=age,
        skin=((0.35 + 0.6 * uniform()) * np.array([1.0, 0.8, 0.66]) + uniform(-0.04, 0.04, 3)).astype(np.float32),
        hair=((1 - grey) * hair + grey * 0.8).astype(np.float32),
        width=uniform(0.5, 0.64) + 0.08 * child,
        height=uniform(0.66, 0.8) - 0.1 * child,
        eye_gap=uniform(0.2, 0.3),
        eye_size=uniform(0.07, 0.1) + 0.05 * child,
        eye_colour=uniform(0.0, 0.5, 3).astype(np.float32),
        mouth_width=uniform(0.16, 0.3),
        mouth_drop=uniform(0.34, 0.46),
        nose=uniform(0.1, 0.22) - 0.06 * child,
        hairline=uniform(-0.5, -0.3) - 0.25 * float(np.clip((age - 40) / 40, 0, 1)),
    )


def _draw_pictures(
    person: _Person, n_images: int, generator: np.random.Generator, options: FacesOptions
) -> NDArray[np.uint8]:
    """Return uint8 [n, 3, size, size]: turned, shifted, lit and blurred by noise differently in each image."""
    x, y, yaw = _posed_grid(n_images, generator, options.size)
    tint = generator.uniform(-0.1, 0.1, (n_images, 3, 1, 1))
    background = (generator.uniform(0.1, 0.9, (n_images, 1, 1, 1)) + tint).astype(np.float32)
    face = _inside(np.hypot(x / person.width, y / person.height))
    hair = _inside(np.hypot(x / (person.width * 1.15), (y + 0.12) / (person.height * 1.12))) * _step(
        person.hairline - y
    )
    picture = _paint(np.broadcast_to(background, (n_images, 3, *x.shape[1:])), hair, person.hair)
    bare = face * (1 - _step(person.hairline - y))
    picture = _paint(picture, bare, person.skin[:, None, None] * (1 - 0.35 * _wrinkles(person, x, y)[:, None]))
    centre = x - 0.25 * yaw
    for side in (-1, 1):
        eye = np.hypot((centre - side * person.eye_gap) / person.eye_size, (y + 0.08) / (0.7 * person.eye_size))
        picture = _paint(picture, _inside(eye), np.full(3, 0.95, np.float32))
        picture = _paint(picture, _inside(eye * 2), person.eye_colour)
        brow = np.abs(y + 0.08 + 2 * person.eye_size) / 0.04 + np.abs(centre - side * person.eye_gap) / 0.14
        picture = _paint(picture, _inside(brow), person.hair)
    nose = np.hypot((centre - 0.1 * yaw) / 0.05, (y - 0.1) / person.nose)
    picture = _paint(picture, 0.5 * _inside(nose), 0.7 * person.skin)
    smile = generator.uniform(-0.6, 0.9, (n_images, 1, 1)).astype(np.float32)
    mouth = np.hypot(centre / person.mouth_width, (y - person.mouth_drop + smile * centre**2) / 0.06)
    picture = _paint(picture, _inside(mouth), np.array([0.6, 0.2, 0.2], np.float32))
    lit = picture * _light(x, y, generator) + generator.normal(0, options.noise, picture.shape)
    stored: NDArray[np.uint8] = np.rint(lit.clip(0, 1) * 255).astype(np.uint8)
    return stored


def _posed_grid(n_images: int, generator: np.random.Generator, size: int) -> tuple[Floats, Floats, Floats]:
    """Return face coordinates x, y [n, size, size] in -1..1 and yaw [n, 1, 1] in -1..1."""
    axis = (np.arange(size, dtype=np.float32) + 0.5) / size * 2 - 1
    roll, yaw, scale, right, down = (
        generator.uniform(low, high, (n_images, 1, 1)).astype(np.float32)
        for low, high in ((-0.3, 0.3), (-1, 1), (0.9, 1.15), (-0.15, 0.15), (-0.12, 0.12))
    )
    across, along = axis[None, None, :] - right, axis[None, :, None] - down
    x = (np.cos(roll) * across + np.sin(roll) * along) / (scale * (1 - 0.15 * np.abs(yaw)))
    y = (np.cos(roll) * along - np.sin(roll) * across) / scale
    return x.astype(np.float32), y.astype(np.float32), yaw


def _wrinkles(person: _Person, x: Floats, y: Floats) -> Floats:
    """Return lines on the forehead and beside the mouth, 0..1, stronger with age."""
    strength = float(np.clip((person.age - 15) / 50, 0, 1))
    forehead = np.maximum(0, np.sin(28 * y)) * _step(-0.2 - y)
    cheeks = np.maximum(0, np.sin(24 * (np.abs(x) - 0.4 * y))) * _step(y - 0.1)
    lines: Floats = np.float32(strength) * (forehead + cheeks)
    return lines


def _light(x: Floats, y: Floats, generator: np.random.Generator) -> Floats:
    n_images = len(x)
    angle, depth, level = (
        generator.uniform(low, high, (n_images, 1, 1)).astype(np.float32)
        for low, high in ((0, 2 * np.pi), (0, 0.35), (0.75, 1.1))
    )
    light = level * (1 + depth * (np.cos(angle) * x + np.sin(angle) * y))
    return light.astype(np.float32)[:, None]


def _paint(picture: Floats, mask: Floats, colour: Floats) -> Floats:
    """Lay a colour ([3] or [n, 3, H, W]) over the image [n, 3, H, W] where the mask [n, H, W] is 1."""
    laid = colour[:, None, None] if colour.ndim == 1 else colour
    painted: Floats = picture + mask[:, None] * (laid - picture)
    return painted


def _inside(radius: NDArray[np.floating[Any]]) -> Floats:
    """Return 1 where radius < 1, falling softly to 0 at the edge."""
    return _step(1 - radius)


def _step(distance: NDArray[np.floating[Any]]) -> Floats:
    soft: Floats = np.clip(0.5 + 6 * distance, 0, 1).astype(np.float32)
    return soft


ADAPTERS: dict[str, Adapter] = {"faces": open_faces}
