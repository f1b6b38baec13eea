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

import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

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
    Team,
)
from server.models.evaluation import Evaluation
from server.models.submission import Submission
from server.storage import Storage, split_key
from tests.lethe.conftest import competition
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
        made = Competition(
            slug=file.slug,
            title=file.title,
            state=CompetitionState.PREPARING.value,
            opens_at=now(),
            closes_at=now() + timedelta(days=1),
            config=file.model_dump(mode="json"),
            source="",
            created_by=olga.id,
        )
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
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    split_id = begin(database, competition())
    monkeypatch.setattr(prepare_split_job, "begin_split", full)
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


@pytest.mark.parametrize("fails", [False, True])
def test_a_starter_kits_models_leave_nothing_on_the_device(host, monkeypatch, fails):
    said: list[str] = []

    def kit(*_: object, **__: object) -> None:
        said.append("kit")
        if fails:
            raise OSError

    @contextmanager
    def given_back(device: torch.device) -> Iterator[None]:
        try:
            yield
        finally:
            said.append(f"{device} given back")

    monkeypatch.setattr(prepare_split_job, "store_kit", kit)
    monkeypatch.setattr(prepare_split_job, "memory_given_back", given_back)
    work = SimpleNamespace(competition=competition(), visibility="public", version=1)
    prepare_split_job._store_kit(host(), work, Path("split"), retraining=RetrainingCost(1.0))  # type: ignore[arg-type]
    assert said == ["kit", "cpu given back"]


def test_the_starter_kit_is_there_before_the_split_counts_as_prepared(database, host, monkeypatch):
    split_id = begin(database, competition())
    states: list[SplitState] = []
    monkeypatch.setattr(prepare_split_job, "store_kit", lambda *_, **__: states.append(get_split(database).state))
    monkeypatch.setattr(prepare_split_job, "begin_split", begin_split)
    assert prepare_split_job.prepare(host(), split_id)
    assert states == [SplitState.PREPARING]
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
        while make_shard(host("b", url=url)):
            pass
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


def test_a_small_split_is_one_job(database: Database, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_split_job, "begin_split", begin_split)
    assert prepare_split_job.prepare(host(), begin(database, competition()))
    assert get_split(database).state == SplitState.READY


def test_hosts_with_only_shared_storage_give_the_same(database: Database, host: Host, tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    first, second, third = (host(name, url=url) for name in "abc")
    split_id = begin(database, competition())
    assert prepare_split_job.prepare(first, split_id)
    while make_shard(second) and make_shard(first):
        pass
    assert prepare_split_job.prepare(third, split_id)
    assert get_split(database).state == SplitState.READY
    key = "splits/small/public"
    published = {name.removeprefix(f"{key}/"): third.storage.read(name) for name in third.storage.keys(key)}
    assert published.pop("manifest.json")
    assert published == alone(competition(), tmp_path / "alone")


def test_a_check_by_a_host_that_has_no_copy_trains_nothing(database, host, tmp_path, monkeypatch):
    url = f"memory://{tmp_path.name}"
    split_id = begin(database, competition())
    assert prepare_split_job.prepare(host("a", url=url), split_id)
    while make_shard(host("a", url=url)):
        pass
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
    with database.write() as session:
        made = session.scalars(select(Competition)).one()
        made.state = CompetitionState.OPEN.value
        dataset = {"name": "digits", "options": {"noise": 0.25}}
        second = Split(competition_id=made.id, visibility="public", version=2, is_current=False, dataset=dataset)
        session.add(second)
        session.flush()
        second_id = second.id
        session.add(_evaluation_on(session, made, split_id))
    assert prepare_split_job.prepare(host(), second_id)
    with database.read() as session:
        split = session.get_one(Split, second_id)
        assert (split.state, split.is_current, split.error) == (SplitState.READY, False, "")
    assert content(folders / "public") == first
    assert Manifest.read(folders / "public-2").recipe["dataset"]["options"] == {"noise": 0.25}
    assert kits == [folders / "public"], "the kit stays that of the version that counts"


def _evaluation_on(session: Session, made: Competition, split_id: str) -> Evaluation:
    team = Team(competition_id=made.id, name="ada", name_key="ada", leader_id=made.created_by)
    session.add(team)
    session.flush()
    code = {"filename": "a.py", "kind": "py", "content_sha256": "0" * 64, "size_bytes": 1, "entry_point": {}}
    submission = Submission(competition_id=made.id, team_id=team.id, account_id=made.created_by, **code)
    session.add(submission)
    session.flush()
    return Evaluation(submission_id=submission.id, split_id=split_id, scorer_version="1", n_runs=1)


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
    while make_shard(context):
        pass
    assert prepare_split_job.prepare(context, split_id)
    assert content(tmp_path / "storage/splits/small/public") == alone(competition(**CNN), tmp_path / "alone")


@pytest.mark.parametrize("shown", list(Visibility))
def test_whoever_asks_for_a_shard_finishes_a_public_split_first(database, host, monkeypatch, shown):
    split_id, context = begin(database, competition()), host()
    assert prepare_split_job.prepare(context, split_id)
    while make_shard(context):
        pass
    with database.write() as session:
        session.get_one(Split, split_id).visibility = shown.value
    monkeypatch.setattr(tasks, "get_context", lambda: context)
    monkeypatch.setattr(tasks, "send", lambda *_: None)
    monkeypatch.setattr(tasks, "_heartbeat", nullcontext)
    assert tasks.prepare_shard() == (shown == Visibility.PUBLIC)


def test_another_release_of_torch_does_not_finish_what_it_would_make_again(database, host):
    split_id, context = begin(database, competition()), host()
    assert prepare_split_job.prepare(context, split_id)
    while make_shard(context):
        pass
    other = host("b")
    other.facts = replace(other.facts, versions={"torch": "1.0.0"})
    assert not prepare_split_job.finish_public(other)
    assert not prepare_split_job.prepare(other, split_id)
    assert prepare_split_job.finish_public(context)


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


def test_a_stopping_worker_hands_its_shard_over(database: Database, host: Host) -> None:
    split_id, context = begin(database, competition()), host()
    assert prepare_split_job.prepare(context, split_id)
    graceful_shutdown.begin(give_back_after_s=0)
    try:
        assert make_shard(context)
    finally:
        graceful_shutdown.reset()
    with database.read() as session:
        first = session.scalars(select(ModelShard).order_by(ModelShard.id)).first()
    assert first is not None
    assert (first.state, first.failed_attempts) == (ModelShardState.QUEUED, 0)


def test_a_host_without_room_gives_its_shard_back(database, host, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    split_id, context = begin(database, competition()), host()
    assert prepare_split_job.prepare(context, split_id)
    monkeypatch.setattr(image_task, "train_models", full)
    with pytest.raises(OSError, match="no space"):
        make_shard(context)
    with database.read() as session:
        first = session.scalars(select(ModelShard).order_by(ModelShard.id)).first()
    assert first is not None
    assert (first.state, first.failed_attempts, first.error) == (
        ModelShardState.QUEUED,
        1,
        "OSError: no space left on device",
    )


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
    while make_shard(host("d", url=url)):
        pass
    assert prepare_split_job.prepare(host("a", url=url), split_id)
    storage = host("e", url=url).storage
    published = {name.removeprefix("splits/small/public/"): storage.read(name) for name in storage.keys("splits")}
    assert published.pop("manifest.json")
    assert published == alone(changed, tmp_path / "alone")
