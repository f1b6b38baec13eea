"""The demo's competition: baselines where its pages are served, none where it leaves at the end."""

from lethe.competition.file import parse_competition
from server.cli.demo import competition_file


def test_served_demo_has_six_baselines() -> None:
    file = parse_competition(competition_file(with_baselines=True))
    assert len(file.report.baselines) >= 6


def test_demo_that_leaves_has_the_same_splits_and_no_baselines() -> None:
    served, left = (parse_competition(competition_file(with_baselines=flag)) for flag in (True, False))
    assert left.report.baselines == ()
    assert (left.splits, left.training, left.n_models) == (served.splits, served.training, served.n_models)
