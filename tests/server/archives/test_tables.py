"""Rows of archives that an older version wrote."""

import pytest

from server.archives.tables import OWN_PARTS, RENAMED, read_row


@pytest.mark.parametrize(("table", "column"), list(RENAMED))
def test_renamed_columns_of_older_archives_are_read(table: str, column: str) -> None:
    (part,) = (part for part in OWN_PARTS if part.name == table)
    assert read_row(part, {"id": 1, column: None}) == {"id": 1, RENAMED[table, column]: None}


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(KeyError, match="colour"):
        read_row(OWN_PARTS[0], {"colour": "red"})
