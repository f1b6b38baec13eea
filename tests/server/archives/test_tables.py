"""Rows of archives that an older version wrote."""

import pytest

from server.archives.tables import OWN_PARTS, RENAMED, read_row, unknown_columns


@pytest.mark.parametrize(("table", "column"), list(RENAMED))
def test_renamed_columns_of_older_archives_are_read(table: str, column: str) -> None:
    (part,) = (part for part in OWN_PARTS if part.name == table)
    assert read_row(part, {"id": 1, column: None}) == {"id": 1, RENAMED[table, column]: None}


def test_unknown_columns_are_left_out() -> None:
    row = {"id": "a", "colour": "red"}
    assert read_row(OWN_PARTS[0], row) == {"id": "a"}
    assert unknown_columns(OWN_PARTS[0], row) == {"competitions.colour"}
