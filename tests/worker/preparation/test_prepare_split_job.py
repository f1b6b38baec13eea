"""Preparing a split as work of many workers: the same bits as one alone, whoever dies on the way."""

import hashlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from sqlalchemy import select

from lethe.competition.file import CompetitionFile
from lethe.competition.run_limits import RetrainingCost
from lethe.competition.visibility import Visibility
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import UntrainedModel
from lethe.evaluation.manifest import Manifest, verify_split
from lethe.preparation import image_task, model_shards
from lethe.preparation.prepare import begin_split, prepare_split
from lethe.preparation.step_cache import PreparationProgress
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.trainer import ModelTraining
from server import queue
from server.competitions import model_shard_leases as rows
from server.competitions import split_leases, stalled_preparations
from server.config import Settings
from server.db import Database, clock, now
from server.models.account import Account, AuditEvent, Role
from server.models.competition import (
    Competition,
    CompetitionState,
    ModelShard,
    ModelShardState,
    Split,
    SplitState,
)
from server.storage import Storage, split_key
from tests.lethe.conftest import competition
from tests.server.evaluations.conftest import add_submission
from worker import tasks
from worker.host import graceful_shutdown
from worker.host.worker_info import worker_facts
from worker.preparation import prepare_split_job
from worker.preparation.train_shard_job import make_shard

CNN = {
    "network": {"name": "small_cnn", "options": {"widths": [4]}},
    "training": {"epochs": 3, "augmentation": "flip", "min_train_accuracy": 0.01},
    "n_models": 4,
}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of two models, and every split worth dividing; nobody is listening for messages."""
    monkeypatch.setattr(model_shards, "MODELS_PER_SHARD", 2)
    monkeypatch.setattr(prepare_split_job, "begin_split", partial(begin_split, share_from_s=0))
    monkeypatch.setattr(prepare_split_job, "store_kit", lambda *_, **__: None)
    cost = RetrainingCost(2.0, cpu_s=1.5, start_cpu_s=0.02)  # what it is, test_retraining_time.py asks
    monkeypatch.setattr(prepare_split_job, "measure_retraining_cost", lambda *_, **__: cost)
    monkeypatch.setattr(queue, "send", lambda *_, **__: True)


@pytest.fixture
def database(migrated_sqlite_url: str) -> Database:
    return Database(migrated_sqlite_url)


Host = Callable[..., Any]


@pytest.fixture
def host(database: Database, tmp_path: Path) -> Host:
    """Make the context of a worker on its own host; its storage is shared if it is not remote."""

    def make(name: str = "a", *, url: str = "") -> Any:
        settings = Settings(home=tmp_path / f"host-{name}", heartbeat_s=0.05)
        facts = worker_facts(settings)
        storage = Storage(url or str(tmp_path / "storage"))
        return SimpleNamespace(settings=settings, database=database, storage=storage, facts=facts)

    return make


def begin(database: Database, file: CompetitionFile) -> str:
    """Put a competition into the database whose public split waits for its preparation. Return the split's id."""
    with database.write() as session:
        olga = Account(name="olga", name_key="olga", role=Role.ORGANISER.value, password_hash="x")
        session.add(olga)
        session.flush()
        times = {"opens_at": now(), "closes_at": now() + timedelta(days=1), "state": CompetitionState.PREPARING.value}
        told = {"slug": file.slug, "title": file.title, "config": file.model_dump(mode="json"), "source": ""}
        made = Competition(**told, **times, created_by=olga.id)
        session.add(made)
        session.flush()
        split = Split(competition_id=made.id, visibility=Visibility.PUBLIC.value)
        session.add(split)
        session.flush()
        return split.id


def get_split(database: Database) -> Split:
    with database.read() as session:
        return session.scalars(select(Split)).one()


def content(folder: Path) -> dict[str, bytes]:
    """Return every file of a split but the manifest, which holds measured times."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name != "manifest.json"}


def make_shards(context: Any) -> None:
    while make_shard(context):
        pass


def alone(file: CompetitionFile, folder: Path) -> dict[str, bytes]:
    """Return what one process makes of the split."""
    prepare_split(file, "public", folder)
    return content(folder)


def test_shards_of_one_host_give_what_one_job_gives(database: Database, host: Host, tmp_path: Path) -> None:
    split_id, context = begin(database, competition()), host()
    assert prepare_split_job.prepare(context, split_id)
    assert not prepare_split_job.prepare(context, split_id)  # its shards come first
    made = 0
    while make_shard(context):
        assert prepare_split_job.finish_public(context) == (made == 5)
        made += 1
    assert made == 6
    split = get_split(database)
    assert (split.state, split.progress, split.device) == (SplitState.READY, 1.0, "cpu")
    assert split.retraining == RetrainingCost(2.0, cpu_s=1.5, start_cpu_s=0.02)
    folder = tmp_path / "storage/splits/small/public"
    assert verify_split(folder) == []
    assert content(folder) == alone(competition(), tmp_path / "alone")


def test_host_error_is_shown_until_the_split_is_ready(database, host, monkeypatch):
    split_id = begin(database, competition())
    monkeypatch.setattr(prepare_split_job, "begin_split", Mock(side_effect=OSError("no space left on device")))
    with pytest.raises(OSError, match="no space"):
        prepare_split_job.prepare(host(), split_id)
    split = get_split(database)
    assert split.state == SplitState.PREPARING
    assert split.error == "attempt 1 was broken off and will be made again: OSError: no space left on device"
    with database.write() as session:
        session.scalars(select(Split)).one().lease_expires_at = None  # it has run out
    monkeypatch.setattr(prepare_split_job, "begin_split", begin_split)
    assert prepare_split_job.prepare(host(), split_id)
    assert (get_split(database).state, get_split(database).error) == (SplitState.READY, "")


def test_the_starter_kit_is_there_before_the_split_counts_as_prepared(database, host, monkeypatch):
    """And its models leave nothing on the device."""
    split_id, seen = begin(database, competition()), []

    @contextmanager
    def given_back(device: torch.device) -> Iterator[None]:
        yield
        seen.append(f"{device} given back")

    monkeypatch.setattr(prepare_split_job, "memory_given_back", given_back)
    monkeypatch.setattr(prepare_split_job, "store_kit", lambda *_, **__: seen.append(get_split(database).state))
    monkeypatch.setattr(prepare_split_job, "begin_split", begin_split)
    assert prepare_split_job.prepare(host(), split_id)
    assert seen[-2:] == [SplitState.PREPARING, "cpu given back"]
    assert get_split(database).state == SplitState.READY


@pytest.mark.parametrize(
    ("met", "done"),
    [
        ("nothing", ["a measures", "a makes the kit"]),
        ("an error", ["a measures", "b measures", "b makes the kit"]),
        ("b, who finishes first", ["a measures", "b measures", "b makes the kit"]),
        ("b, at the kit", ["a measures", "a makes the kit", "b makes the kit"]),
        ("an error at the kit", ["a measures", "a makes the kit", "b makes the kit"]),
        ("another limit", ["a measures", "a makes the kit", "b makes the kit"]),
    ],
)
def test_retraining_is_measured_once_while_others_train(database, host, tmp_path, monkeypatch, met, done):
    url, said, at_work = f"memory://{tmp_path.name}", [], ["a"]

    def finish() -> None:
        at_work[0] = "b"
        make_shards(host("b", url=url))
        assert prepare_split_job.prepare(host("b", url=url), split_id)

    def measure(*_: Any, **__: Any) -> RetrainingCost:
        said.append(f"{at_work[0]} measures")
        if at_work[0] == "a" and met == "an error":
            raise OSError("no space left on device")
        if at_work[0] == "a" and met == "b, who finishes first":
            finish()
        return RetrainingCost(3.0, cpu_s=len(said), start_cpu_s=0.25, doubt="beside other work")

    def kit(*_: Any, retraining: RetrainingCost, **__: Any) -> None:
        said.append(f"{at_work[0]} makes the kit")
        costs.append(retraining)
        if at_work[0] == "a" and met == "an error at the kit":
            raise OSError("no space left on device")
        if at_work[0] == "a" and met == "b, at the kit":
            finish()

    costs: list[RetrainingCost] = []
    monkeypatch.setattr(prepare_split_job, "measure_retraining_cost", measure)
    monkeypatch.setattr(prepare_split_job, "store_kit", kit)
    split_id = begin(database, competition())
    assert prepare_split_job.prepare(host("a", url=url), split_id)
    if met == "another limit":
        with database.write() as session:
            row = session.scalars(select(Competition)).one()
            row.config = {**row.config, "limits": {**row.config["limits"], "memory_mib": 999}}
    if at_work[0] == "a":
        finish()
    assert said == done
    split = get_split(database)
    assert split.retraining == RetrainingCost(3.0, cpu_s=done.count("b measures") + 1, start_cpu_s=0.25)
    assert (split.state, split.error) == (SplitState.READY, "beside other work")
    assert {cost.cpu_s for cost in costs} == {split.retraining_cpu_s}, "every kit says the split's limit"
    names = host("a", url=url).storage.keys(split_key(competition().slug, "public", 1))
    assert not [name for name in names if "/work/" in name]


def test_preparer_that_comes_back_changes_nothing(database, host, tmp_path, monkeypatch):
    """Frozen behind its last heartbeat: meanwhile its lease runs out, and another worker finishes the split."""
    monkeypatch.setattr(prepare_split_job, "begin_split", begin_split)
    split_id = begin(database, competition())
    watched, manifests = prepare_split_job.watched, []

    @contextmanager
    def frozen(*_: Any, **__: Any) -> Iterator[Callable[[PreparationProgress], None]]:
        def tell(progress: PreparationProgress) -> None:
            if progress.stage == "oracle" and not manifests:
                monkeypatch.setattr(prepare_split_job, "watched", watched)
                with database.write() as session:
                    session.scalars(select(Split)).one().lease_expires_at = None  # it has run out
                assert prepare_split_job.prepare(host("b"), split_id)
                manifests.append((tmp_path / "storage/splits/small/public/manifest.json").read_bytes())

        yield tell  # its heartbeat sleeps as well, and has noticed nothing when it goes on

    monkeypatch.setattr(prepare_split_job, "watched", frozen)
    assert prepare_split_job.prepare(host("a"), split_id)
    found = (tmp_path / "storage/splits/small/public/manifest.json").read_bytes()
    assert [found] == manifests
    split = get_split(database)
    assert split.state == SplitState.READY
    assert split.manifest_sha256 == hashlib.sha256(found).hexdigest()


def test_a_check_by_a_host_that_has_no_copy_trains_nothing(database, host, tmp_path, monkeypatch):
    url = f"memory://{tmp_path.name}"
    split_id = begin(database, competition())
    assert prepare_split_job.prepare(host("a", url=url), split_id)
    make_shards(host("a", url=url))
    assert prepare_split_job.prepare(host("a", url=url), split_id)
    with database.write() as session:
        session.scalars(select(Split)).one().state = SplitState.PENDING.value
        for shard in session.scalars(select(ModelShard)):
            session.delete(shard)
    before = get_split(database).retraining
    monkeypatch.setattr(image_task, "train_models", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setattr(prepare_split_job, "measure_retraining_cost", lambda *_, **__: pytest.fail("measured again"))
    assert prepare_split_job.prepare(host("b", url=url), split_id)
    assert get_split(database).state == SplitState.READY
    assert get_split(database).retraining == before


def test_a_check_says_that_the_data_has_changed(database, host, tmp_path, monkeypatch):
    split_id, folder = begin(database, competition()), tmp_path / "storage/splits/small/public"
    monkeypatch.setattr(prepare_split_job, "begin_split", begin_split)
    assert prepare_split_job.prepare(host(), split_id)
    assert get_split(database).error == ""
    before = content(folder)
    _change_labels(monkeypatch, every=3)
    _check_again(database, host(), split_id)
    split = get_split(database)
    assert split.state == SplitState.READY
    assert "retain: labels of" in split.error
    assert "replace-split" in split.error
    assert content(folder) == before, "what is stored stays"
    with database.read() as session:
        assert "split.data_differs" in session.scalars(select(AuditEvent.action)).all()
    (folder / "visible/retain.safetensors").unlink()
    _check_again(database, host(), split_id)
    split = get_split(database)
    assert split.state == SplitState.FAILED, "nothing is made of other data without a word"
    assert "visible/retain.safetensors was damaged" in split.error


def test_a_replacing_version_is_made_beside_the_current_one(database, host, tmp_path, monkeypatch):
    split_id, folders = begin(database, competition()), tmp_path / "storage/splits/small"
    kits: list[Path] = []
    monkeypatch.setattr(prepare_split_job, "store_kit", lambda _, folder, *__, **___: kits.append(folder))
    monkeypatch.setattr(prepare_split_job, "begin_split", begin_split)
    assert prepare_split_job.prepare(host(), split_id)
    first = content(folders / "public")
    _change_labels(monkeypatch, every=3)
    with database.read() as session:
        add_submission(database, session.scalars(select(Competition)).one(), "ada")
    with database.write() as session:
        made = session.scalars(select(Competition)).one()
        made.state = CompetitionState.OPEN.value
        dataset = {"name": "digits", "options": {"noise": 0.25}}
        second = Split(competition_id=made.id, visibility="public", version=2, is_current=False, dataset=dataset)
        session.add(second)
        session.flush()
        second_id = second.id
    assert prepare_split_job.prepare(host(), second_id)
    with database.read() as session:
        split = session.get_one(Split, second_id)
        assert (split.state, split.is_current, split.error) == (SplitState.READY, False, "")
    assert content(folders / "public") == first
    assert Manifest.read(folders / "public-2").recipe["dataset"]["options"] == {"noise": 0.25}
    assert kits == [folders / "public"], "the kit stays that of the version that counts"


def _change_labels(monkeypatch: pytest.MonkeyPatch, *, every: int) -> None:
    """Let the dataset have another label for every third example, as in a file that was edited."""
    opened = image_task.open_dataset

    def changed(file: CompetitionFile) -> ImageDataset:
        dataset = opened(file)
        labels = dataset.labels.copy()
        labels[::every] = (labels[::every] + 1) % dataset.n_classes
        return replace(dataset, labels=labels)

    monkeypatch.setattr(image_task, "open_dataset", changed)


def _check_again(database: Database, context: Any, split_id: str) -> None:
    with database.write() as session:
        split = session.get_one(Split, split_id)
        stalled_preparations.check(split, clock(session))
    assert prepare_split_job.prepare(context, split_id)


def _train_until_stuck(context: Any, epochs: int, stuck: Any) -> None:
    """Make a shard, but never begin another epoch after so many: the body of a worker that is killed."""
    run_epoch = ModelTraining.run_epoch
    left = iter(range(epochs))

    def slow(training: ModelTraining) -> None:
        if next(left, None) is None:
            stuck.set()
            signal.pause()
        run_epoch(training)

    ModelTraining.run_epoch = slow  # type: ignore[method-assign]
    make_shard(context)


def test_killed_workers_models_resume_at_their_epoch(database, host, tmp_path, monkeypatch):
    monkeypatch.setattr(model_shards, "TrainingCheckpoints", partial(TrainingCheckpoints, every_s=0.0))
    split_id, context = begin(database, competition(**CNN)), host()
    assert prepare_split_job.prepare(context, split_id)
    database.dispose()
    process_context = multiprocessing.get_context("fork")
    stuck = process_context.Event()
    worker = process_context.Process(target=_train_until_stuck, args=(context, 5, stuck))  # before model 1's last epoch
    worker.start()
    try:
        assert stuck.wait(timeout=120)
    finally:
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
    with database.write() as session:
        assert rows.MODEL_SHARDS.sweep(session, clock(session) + timedelta(seconds=61), max_attempts=3) == 1
    trained: list[int] = []
    run_epoch = ModelTraining.run_epoch

    def counted(training: ModelTraining) -> None:
        trained.append(training.epoch)
        run_epoch(training)

    monkeypatch.setattr(ModelTraining, "run_epoch", counted)
    assert make_shard(context)
    assert trained == [2]
    make_shards(context)
    assert prepare_split_job.prepare(context, split_id)
    assert content(tmp_path / "storage/splits/small/public") == alone(competition(**CNN), tmp_path / "alone")


def test_whoever_asks_for_a_shard_finishes_a_public_split_first(database, host, monkeypatch):
    """But not one that it would have to make again, with another release of torch."""
    split_id, context, other = begin(database, competition()), host(), host("b")
    assert prepare_split_job.prepare(context, split_id)
    make_shards(context)
    other.facts = replace(other.facts, versions={"torch": "1.0.0"})
    assert not prepare_split_job.finish_public(other)
    assert not prepare_split_job.prepare(other, split_id)
    monkeypatch.setattr(tasks, "get_context", lambda: context)
    monkeypatch.setattr(tasks, "send", lambda *_: None)
    monkeypatch.setattr(tasks, "_heartbeat", nullcontext)
    for shown in (Visibility.PRIVATE, Visibility.PUBLIC):
        with database.write() as session:
            session.get_one(Split, split_id).visibility = shown.value
        assert tasks.prepare_shard() == (shown == Visibility.PUBLIC)


def test_split_whose_turn_it_is_not_holds_up_no_other(database, host, monkeypatch):
    context, tried = host(), []
    monkeypatch.setattr(split_leases, "public_splits_to_finish", lambda *_, **__: ["forbidden", "allowed", "later"])
    monkeypatch.setattr(prepare_split_job, "prepare", lambda _, split: tried.append(split) or split == "allowed")
    assert prepare_split_job.finish_public(context)
    assert tried == ["forbidden", "allowed"]


def test_untrained_model_stops_the_preparation_and_is_named(database, host, monkeypatch):
    def check(_: object, model: str, *__: object, **___: object) -> None:
        if model == "retrained model 3":
            raise UntrainedModel(f"{model} reaches an accuracy of 0.1")

    monkeypatch.setattr(model_shards, "check_learned", check)
    split_id, context = begin(database, competition()), host()
    assert prepare_split_job.prepare(context, split_id)
    assert make_shard(context)
    assert make_shard(context)
    split = get_split(database)
    assert (split.state, split.error) == (SplitState.FAILED, "retrained model 3 reaches an accuracy of 0.1")
    assert not make_shard(context)
    assert not prepare_split_job.prepare(context, split_id)


def test_shard_that_a_host_cannot_make_is_queued_again(database, host, monkeypatch):
    """A worker that stops hands it over; one without room gives it back."""

    def first() -> tuple[str, int, str | None]:
        with database.read() as session:
            shard = session.scalars(select(ModelShard).order_by(ModelShard.id).limit(1)).one()
            return shard.state, shard.failed_attempts, shard.error

    split_id, context = begin(database, competition()), host()
    assert prepare_split_job.prepare(context, split_id)
    graceful_shutdown.begin(give_back_after_s=0)
    try:
        assert make_shard(context)
    finally:
        graceful_shutdown.reset()
    assert first()[:2] == (ModelShardState.QUEUED, 0)
    monkeypatch.setattr(image_task, "train_models", Mock(side_effect=OSError("no space left on device")))
    with pytest.raises(OSError, match="no space"):
        make_shard(context)
    assert first() == (ModelShardState.QUEUED, 1, "OSError: no space left on device")


def test_models_of_a_replaced_recipe_are_not_reused(database: Database, host: Host, tmp_path: Path) -> None:
    """Data, network and records are the same: only the recipe tells the old models from the new."""
    url = f"memory://{tmp_path.name}"
    split_id = begin(database, competition())
    assert prepare_split_job.prepare(host("a", url=url), split_id)
    assert make_shard(host("b", url=url))
    changed = competition(training={"epochs": 5})
    with database.write() as session:
        session.scalars(select(Competition)).one().config = changed.model_dump(mode="json")
        split = session.scalars(select(Split)).one()
        split.state, split.attempt = SplitState.PENDING.value, split.attempt + 1
        for shard in session.scalars(select(ModelShard)):
            session.delete(shard)
    assert prepare_split_job.prepare(host("c", url=url), split_id)
    make_shards(host("d", url=url))
    assert prepare_split_job.prepare(host("a", url=url), split_id)
    storage = host("e", url=url).storage
    published = {name.removeprefix("splits/small/public/"): storage.read(name) for name in storage.keys("splits")}
    assert published.pop("manifest.json")
    assert published == alone(changed, tmp_path / "alone")
