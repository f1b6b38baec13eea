"""What the competition file refuses, and the words in which it says what is allowed."""

import pytest

from lethe.competition.file import CompetitionFile, RunRules, parse_competition
from lethe.competition.splits_section import Splits
from lethe.errors import InvalidCompetitionFile

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
