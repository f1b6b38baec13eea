"""What a new competition must not say: values with which none could be held, in the same words for every door."""

from datetime import UTC, datetime

import pytest

from lethe.competition.file import parse_competition
from lethe.competition.new_file import require_new
from lethe.errors import InvalidCompetitionFile

AT = datetime(2030, 1, 15, tzinfo=UTC)
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
"""


def test_a_usual_file_is_taken() -> None:
    require_new(parse_competition(TOML), at=AT)


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
    file = parse_competition(TOML.replace(usual, wrong))
    with pytest.raises(InvalidCompetitionFile) as raised:
        require_new(file, at=AT)
    (violation,) = raised.value.violations
    assert violation.field == field
    assert message in violation.message


def test_a_mistake_of_one_task_is_named_with_its_place() -> None:
    tasks = '[[tasks]]\nname = "a"\n[[tasks]]\nname = "b"\n[tasks.training]\nepochs = 1\nlearning_rate = 1e9\n'
    with pytest.raises(InvalidCompetitionFile) as raised:
        require_new(parse_competition(TOML + tasks), at=AT)
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
        parse_competition(TOML.replace(usual, wrong))
    assert message in raised.value.detail
