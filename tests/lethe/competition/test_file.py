"""What the competition file refuses, and the words in which it says what is allowed."""

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from lethe.competition.file import CompetitionFile, RunRules, Training, parse_competition
from lethe.competition.new_file import require_new
from lethe.competition.section import SCHEMA_VERSION, as_stored, read_stored, schema_version
from lethe.competition.sections import Ranking
from lethe.competition.splits_section import Splits
from lethe.competition.task import require_text_settings
from lethe.errors import InvalidCompetitionFile
from tests.lethe.conftest import competition

TOML = """
slug = "small"
title = "Small"
opens_at = 2030-01-01T00:00:00Z
closes_at = 2030-02-01T00:00:00Z
n_models = 32
[dataset]
name = "digits"
[network]
name = "mlp"
[training]
epochs = 1
learning_rate = 0.1
[limits]
wall_time_s = 3600
[splits.forget]
fraction = 0.02
[scoring]
setup = "{setup}"
[submissions]
modes = {modes}
"""


USUAL = TOML.format(setup="reuse-n-1", modes='["function"]')

SLUG = "slug: must be 1 to 64 lower-case letters, digits and hyphens, without a hyphen at an end"


@pytest.mark.parametrize("modes", ['["notebook"]', '["function", "notebook"]'])
def test_reuse_n_n_with_notebook_mode_is_refused(modes: str) -> None:
    with pytest.raises(InvalidCompetitionFile, match='take "notebook" out of submissions') as refused:
        parse_competition(TOML.format(setup="reuse-n-n", modes=modes))
    assert 'scoring.setup "reuse-n-n"' in refused.value.detail


@pytest.mark.parametrize(("setup", "modes"), [("reuse-n-n", '["function"]'), ("reuse-n-1", '["function", "notebook"]')])
def test_either_alone_is_taken(setup: str, modes: str) -> None:
    file = parse_competition(TOML.format(setup=setup, modes=modes))
    assert (file.scoring.setup, file.submissions.libraries) == (setup, "")


def test_former_name_of_the_scoring_section_is_read_and_not_written() -> None:
    file = parse_competition(USUAL.replace("reuse-n-1", "reuse-n-n").replace("[scoring]", "[metric]"))
    assert file.scoring.setup == "reuse-n-n"
    stored = file.model_dump(mode="json")
    assert "metric" not in stored
    former = {"metric" if name == "scoring" else name: value for name, value in stored.items()}
    assert CompetitionFile.model_validate(former) == CompetitionFile.model_validate(stored) == file
    assert RunRules.model_validate({**former, "keep_weights": 0}).scoring == file.scoring


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (USUAL + "[metric]\ndelta = 0.5\n", "metric: is not known"),
        (USUAL + 'libraries = "2019"\n', "must be empty or one of '2023'"),
        (USUAL.replace("reuse-n-1", "full"), "'reuse-n-1' or 'reuse-n-n'"),
        (USUAL.replace("reuse-n-1", "reuse"), "'reuse-n-1' or 'reuse-n-n'"),
        (USUAL.replace("n_models = 32", "n_models = 1"), "n_models: must be greater than or equal to 2 (was 1)"),
        *((USUAL.replace('"small"', f'"{slug}"'), SLUG) for slug in ("Two Words", "-a", "a-", "a" * 65, "a\\n", "")),
    ],
)
def test_wrong_value_is_told_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(InvalidCompetitionFile) as refused:
        parse_competition(text)
    (violation,) = refused.value.violations
    assert said in str(violation)


def test_missing_seed_is_drawn_at_random() -> None:
    seeds = {Splits().seed for _ in range(100)}
    assert len(seeds) == 100
    assert max(seed.bit_length() for seed in seeds) > 100


REPORT = {"metrics": ["accuracy_gap", "umia"]}


@pytest.mark.parametrize(("ranking", "said"), [
    ({"by": "klom"}, "'klom' is not among report.metrics; allowed are \"score\", accuracy_gap, umia"),
    ({"by": ["umia", "umia"]}, "by names 'umia' twice"),
    ({"by": []}, "at least 1 item"),
    ({"by": "umia", "combine": "product"}, "'mean', 'harmonic-mean' or 'worst'"),
    ({"min_test_ratio": 1.2}, "less than or equal to 1"),
    ({"max_joint_audit": 0.8}, 'needs "joint_audit" once in report.metrics'),
])  # fmt: skip
def test_ranking_that_cannot_be_is_refused(ranking: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        competition(report=REPORT, ranking=ranking)
    assert said in str(refused.value)


def test_ranking_is_said_in_words() -> None:
    assert competition().ranking == Ranking(by=("score",))
    assert competition().ranking.in_words == "score"
    ranking = {"by": ["score", "umia"], "combine": "worst", "min_retain_ratio": 0.95, "min_test_ratio": 0.9}
    said = competition(report=REPORT, ranking=ranking).ranking.in_words
    assert said == "worst of score, umia with retain ratio of at least 0.95 and test ratio of at least 0.9"


TENTH, TWENTIETH = "2026-01-10T00:00:00Z", "2026-01-20T00:00:00Z"


def phases(*starts: str | None, **changes: Any) -> list[dict[str, Any]]:
    return [{"name": f"p{i}", "begins_at": start, **changes} for i, start in enumerate(starts)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phases": [{"name": "a"}, {"name": "a", "begins_at": TENTH}]}, "the name 'a' is taken twice"),
        ({"phases": [{"name": "late"}]}, "the name 'late' is taken twice, or by submissions after the close"),
        ({"phases": phases(None, TENTH, counts=False)}, "in none of them submissions count"),
        ({"phases": phases(TENTH)}, "'p0' is the first and begins at opens_at"),
        ({"phases": phases(None, TWENTIETH, TENTH)}, "'p2' must begin after the phase before it (2026-01-20"),
        ({"phases": phases(None, None)}, "'p1' must begin after the phase before it (2026-01-01"),
        ({"phases": phases(None, "2026-02-01T00:00:00Z")}, "before closes_at (2026-02-01"),
        ({"late": {"accepted": True, "until": TENTH}}, "late.until (2026-01-10"),
    ],
)
def test_phases_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        competition(**changes)
    assert said in str(refused.value)
    assert [phase.name for phase in competition(phases=phases(None, TENTH, TWENTIETH)).phases] == ["p0", "p1", "p2"]


RECIPE = {"epochs": 3, "learning_rate": 0.1, "optimizer": "adamw", "schedule": "cosine"}


def require(changes: dict[str, object]) -> None:
    of_training = {name: value for name, value in changes.items() if name in Training.model_fields}
    of_others: dict[str, Any] = {"forget_by": "person", "class_skew": {}, "modes": ["function"], **changes}
    others = {name: value for name, value in of_others.items() if name not in of_training}
    require_text_settings(Training.model_validate(RECIPE | of_training), **others)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"optimizer": "sgd"}, 'training.optimizer of a "causal-lm" task is "adamw", was "sgd"'),
        ({"schedule": "constant"}, 'training.schedule of a "causal-lm" task is "cosine"'),
        ({"label_smoothing": 0.1}, "training.label_smoothing is for images"),
        ({"augmentation": "flip"}, "training.augmentation is for images"),
        ({"precision": "tf32"}, 'training.precision of a "causal-lm" task is one of "float32", "bf16", was "tf32"'),
        ({"forget_by": "class"}, 'splits.forget.by of a "causal-lm" task is one of "person", "random", "ids"'),
        ({"class_skew": {"1": 2.0}}, "splits.forget.class_skew is for images"),
        ({"modes": ["notebook"]}, 'take "notebook" out of submissions.modes'),
    ],
)
def test_settings_of_images_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match="causal-lm") as refused:
        require(changes)
    assert said in str(refused.value)
    require({"precision": "bf16", "forget_by": "ids"})


AT = datetime(2030, 1, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("usual", "wrong", "field", "message"),
    [
        ("fraction = 0.02", "fraction = 0.99", "splits.forget.fraction", "at most 0.5"),
        (
            "fraction = 0.02",
            "class_skew = { cat = 2.0 }",
            "splits.forget.class_skew.cat",
            "names a class by its number",
        ),
        ("wall_time_s = 3600", "wall_time_s = 1", "limits.wall_time_s", "0.031 s each; must be at least 3.2"),
        ("wall_time_s = 3600", "run_wall_time_s = 0.01", "limits.run_wall_time_s", "must be at least 0.1"),
        ("learning_rate = 0.1", "learning_rate = 1e9", "training.learning_rate", "at most 10 with sgd"),
        ("learning_rate = 0.1", 'learning_rate = 2\noptimizer = "adam"', "training.learning_rate", "at most 1 with"),
        ("learning_rate = 0.1", "learning_rate = 1\nweight_decay = 3", "training.weight_decay", "below 1"),
        ("2030-02-01T00:00:00Z", "2030-01-14T00:00:00Z", "closes_at", "is past"),
        ("[splits.forget]", "[splits]\nseed = 7\n[splits.forget]", "splits.seed", "can be guessed"),
        ('name = "mlp"', 'name = "mlp"\noptions = { hidden = [9999999, 9999999] }', "network.options", "parameters"),
    ],
)
def test_a_value_that_no_competition_can_have_is_named(usual: str, wrong: str, field: str, message: str) -> None:
    require_new(parse_competition(USUAL), at=AT)
    file = parse_competition(USUAL.replace(usual, wrong))
    with pytest.raises(InvalidCompetitionFile) as raised:
        require_new(file, at=AT)
    (violation,) = raised.value.violations
    assert violation.field == field
    assert message in violation.message


def test_a_mistake_of_one_task_is_named_with_its_place() -> None:
    tasks = '[[tasks]]\nname = "a"\n[[tasks]]\nname = "b"\n[tasks.training]\nepochs = 1\nlearning_rate = 1e9\n'
    with pytest.raises(InvalidCompetitionFile) as raised:
        require_new(parse_competition(USUAL + tasks), at=AT)
    assert [violation.field for violation in raised.value.violations] == ["tasks.1.training.learning_rate"]


@pytest.mark.parametrize(
    ("usual", "wrong", "message"),
    [
        ("n_models = 32", 'n_models = "32"', "n_models: must be a whole number, without quotation marks"),
        ("n_models = 32", "n_models = true", "n_models: must be a whole number (was True)"),
        ("epochs = 1", "epochs = 2\nmilestones = ['1']", "training.milestones.0: must be a whole number, without"),
        ("epochs = 1", "epoks = 1", "training.epoks: is not known; did you mean epochs?"),
        ("epochs = 1", "epochs = 1\ntrain_size = 9", "train_size: is not known here; it belongs in [splits"),
        ("epochs = 1", "epochs = 1\nslug = 'a'", "training.slug: is not known here; it belongs above the first"),
        (
            "[limits]",
            '[task]\nkind = "causal-lm"\nlora_rang = 2\n[limits]',
            "lora_rang: is not known; did you mean lora_rank",
        ),
        ("[training]", "[trainnig]", "trainnig: is not known; did you mean training?"),
        ("2030-02-01T00:00:00Z", "2030-02-01T00:00:00", "closes_at: must name its time zone"),
        ("epochs = 1", "epochs = 1\nepochs = 2", "line 13: not TOML: epochs is set twice"),
        ("[training]", "[dataset]\n[training]", "line 11: not TOML: [dataset] is there twice"),
        (
            "fraction = 0.02",
            'classes = ["cat"]',
            "splits.forget.classes: must be numbers of classes, from 0, had 'cat'",
        ),
    ],
)
def test_a_mistake_is_answered_with_what_was_meant(usual: str, wrong: str, message: str) -> None:
    with pytest.raises(InvalidCompetitionFile) as raised:
        parse_competition(USUAL.replace(usual, wrong))
    assert message in raised.value.detail


FILE = competition(report={"metrics": [{"id": "klom", "bins": 10}], "baselines": [{"id": "finetune", "LR": 0.5}]})


def of_a_newer_version() -> dict[str, Any]:
    """Return FILE with keys that this version does not know, at the top, in a section, and in an item of a list."""
    document = deepcopy(as_stored(FILE))
    document["prize"] = {"sum": 500}
    document["scoring"]["fitted_on"] = "half"
    document["limits"]["energy_j"] = 9
    document["phases"] = [{"name": "first", "colour": "blue"}]
    return document


def test_unknown_keys_are_passed_over_and_nothing_else() -> None:
    document = of_a_newer_version()
    before = deepcopy(document)
    found = read_stored(CompetitionFile, document)
    assert found.scoring == FILE.scoring
    assert [phase.name for phase in found.phases] == ["first"]
    assert found.report == FILE.report, "what metrics and baselines take as parameters is no unknown key"
    assert document == before, "the caller's document is his"
    with pytest.raises(ValidationError) as refused:
        read_stored(CompetitionFile, document | {"n_models": 1})
    assert [each["loc"] for each in refused.value.errors()] == [("n_models",)]


def test_unknown_keys_are_kept_where_the_document_is_written_again() -> None:
    stored = of_a_newer_version() | {"schema_version": SCHEMA_VERSION + 1}
    changed = read_stored(CompetitionFile, stored).model_copy(update={"title": "Another title"})
    written = as_stored(changed, before=stored)
    assert written == stored | {"title": "Another title", "phases": written["phases"]}
    assert written["phases"][0]["colour"] == "blue"
    assert schema_version(written) == SCHEMA_VERSION + 1, "who reads less than it says does not lower the version"
    former = as_stored(FILE)
    former["metric"] = former.pop("scoring")
    assert "metric" not in as_stored(read_stored(CompetitionFile, former), before=former)
    assert as_stored(FILE, before=of_a_newer_version())["phases"] == [], "items of another list are not guessed"


@pytest.mark.parametrize(("document", "version"), [({}, 0), ({"schema_version": 3}, 3), ({"schema_version": "x"}, 0)])
def test_version_of_a_document(document: dict[str, Any], version: int) -> None:
    assert schema_version(document) == version
