"""What the competition file refuses, and the words in which it says what is allowed."""

from typing import Any

import pytest
from pydantic import ValidationError

from lethe.competition.file import CompetitionFile, RunRules, Training, parse_competition
from lethe.competition.sections import Ranking
from lethe.competition.splits_section import Splits
from lethe.competition.task import require_text_settings
from lethe.errors import InvalidCompetitionFile
from tests.lethe.conftest import competition

TOML = """
slug = "small"
title = "Small"
opens_at = 2026-01-01T00:00:00Z
closes_at = 2026-02-01T00:00:00Z
[dataset]
name = "digits"
[network]
name = "mlp"
[training]
epochs = 1
learning_rate = 0.1
[scoring]
setup = "{setup}"
[submissions]
modes = {modes}
"""


@pytest.mark.parametrize("modes", ['["notebook"]', '["function", "notebook"]'])
def test_reuse_n_n_with_notebook_mode_is_refused(modes: str) -> None:
    with pytest.raises(InvalidCompetitionFile, match='take "notebook" out of submissions') as refused:
        parse_competition(TOML.format(setup="reuse-n-n", modes=modes))
    assert 'scoring.setup "reuse-n-n"' in refused.value.detail


@pytest.mark.parametrize(("setup", "modes"), [("reuse-n-n", '["function"]'), ("reuse-n-1", '["function", "notebook"]')])
def test_either_alone_is_taken(setup: str, modes: str) -> None:
    assert parse_competition(TOML.format(setup=setup, modes=modes)).scoring.setup == setup


def test_a_set_of_libraries_that_there_is_not_is_refused() -> None:
    text = TOML.format(setup="reuse-n-1", modes='["function"]')
    assert parse_competition(text).submissions.libraries == ""
    assert parse_competition(f'{text}libraries = "2023"\n').submissions.libraries == "2023"
    with pytest.raises(InvalidCompetitionFile, match="must be empty or one of '2023'"):
        parse_competition(f'{text}libraries = "2019"\n')


def test_former_name_of_the_scoring_section_is_read_and_not_written() -> None:
    text = TOML.format(setup="reuse-n-n", modes='["function"]')
    file = parse_competition(text.replace("[scoring]", "[metric]"))
    assert file.scoring.setup == "reuse-n-n"
    stored = file.model_dump(mode="json")
    assert "metric" not in stored
    former = {"metric" if name == "scoring" else name: value for name, value in stored.items()}
    assert CompetitionFile.model_validate(former) == CompetitionFile.model_validate(stored) == file
    assert RunRules.model_validate({**former, "keep_weights": 0}).scoring == file.scoring


def test_both_names_of_the_scoring_section_are_refused() -> None:
    text = TOML.format(setup="reuse-n-1", modes='["function"]') + "[metric]\ndelta = 0.5\n"
    with pytest.raises(InvalidCompetitionFile, match="metric: is not known"):
        parse_competition(text)


@pytest.mark.parametrize("setup", ["full", "bootstrap", "reuse"])
def test_unsupported_setup_error_names_the_supported_ones(setup: str) -> None:
    with pytest.raises(InvalidCompetitionFile, match="'reuse-n-1' or 'reuse-n-n'"):
        parse_competition(TOML.format(setup=setup, modes='["function"]'))


def test_missing_seed_is_drawn_at_random() -> None:
    seeds = {Splits().seed for _ in range(100)}
    assert len(seeds) == 100
    assert max(seed.bit_length() for seed in seeds) > 100


@pytest.mark.parametrize("slug", ["Two Words", "-a", "a-", "a" * 65, "a\\n", ""])
def test_wrong_slug_is_told_what_is_allowed(slug: str) -> None:
    text = TOML.format(setup="reuse-n-1", modes='["function"]')
    with pytest.raises(InvalidCompetitionFile) as refused:
        parse_competition(text.replace('"small"', f'"{slug}"'))
    (violation,) = refused.value.violations
    assert violation.field == "slug"
    assert violation.message == "must be 1 to 64 lower-case letters, digits and hyphens, without a hyphen at an end"


def test_wrong_number_is_told_its_bound() -> None:
    text = TOML.format(setup="reuse-n-1", modes='["function"]')
    with pytest.raises(InvalidCompetitionFile) as refused:
        parse_competition("n_models = 1" + text)
    assert [str(each) for each in refused.value.violations] == ["n_models: must be greater than or equal to 2 (was 1)"]


REPORT = {"metrics": ["accuracy_gap", "umia"]}


def test_score_ranks_where_the_file_says_nothing() -> None:
    assert competition().ranking == Ranking(by=("score",))
    assert competition().ranking.in_words == "score"


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


def test_combination_and_gates_are_said_in_words() -> None:
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


def test_phases_in_order_are_taken() -> None:
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


def test_settings_of_texts_are_taken() -> None:
    require({"precision": "bf16", "forget_by": "ids"})
