"""A metric's table as lines of text."""

from lethe.metrics.core.metric_text import table_lines


def test_numbers_columns_words_and_gaps_are_lines() -> None:
    table = {"joint_auc_share": 0.123456, "models": 16, "worst": "none", "attack": ["a", "b"], "auc": [0.5, None]}
    assert table_lines(table) == ["joint auc share: 0.1235", "models: 16", "worst: none", "attack: a, b", "auc: 0.5, –"]


def test_empty_table_has_no_line() -> None:
    assert table_lines({}) == []
