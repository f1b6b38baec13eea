"""Names that look the same are the same name: the idea of Unicode's UTS 39, for the scripts that people mix in earnest.

Letters of mathematics, full width and other styles are compatibility forms, which NFKC takes away. What it leaves are
letters of other scripts with the shape of a Latin one. The table is for Greek, Cyrillic and Armenian, by their shapes.

Letters and figures of ASCII that look alike are another matter: a person logs in by the exact name, but nobody may take
a name that only they tell from somebody else's. UTS 39 has these too, except for `vv`.
"""

import unicodedata
from functools import reduce

from sqlalchemy import ColumnElement, func
from sqlalchemy.orm import InstrumentedAttribute

# Where only the capital has a Latin shape, the small letter still counts as that one: names ignore case.
_ALIKE = {
    "a": "αаɑ",
    "b": "βвь",
    "c": "сϲⅽ",
    "d": "ԁ",
    "e": "εеєҽ",
    "g": "ɡց",
    "h": "нһհ",
    "i": "ιіı",
    "j": "јϳ",
    "k": "κк",
    "l": "ӏ",
    "m": "мϻ",
    "n": "ոռ",
    "o": "οоօ",
    "p": "ρр",
    "q": "ԛզգ",
    "s": "ѕ",
    "t": "τт",
    "u": "υս",
    "v": "νѵ",
    "w": "ωѡԝա",
    "x": "χх",
    "y": "уγүყ",
    "z": "ζ",
}
# Greek capitals whose small letter has another Latin shape than they have themselves.
_CAPITALS = str.maketrans("ΝΗΥΜѴ", "nhymv")
_TABLE = str.maketrans({other: latin for latin, others in _ALIKE.items() for other in others})

# After case is ignored: a capital I looks like an l, so an i does.
_SHAPES = (("rn", "m"), ("vv", "w"), ("1", "l"), ("i", "l"), ("|", "l"), ("0", "o"))


def look_alike_key(name: str) -> str:
    """Return what two names share that look the same, whatever their case, style or script; of ASCII only the case."""
    plain = unicodedata.normalize("NFKC", name).translate(_CAPITALS).casefold()
    letters = unicodedata.normalize("NFD", plain).translate(_TABLE)
    shown = "".join(letter for letter in letters if unicodedata.category(letter) != "Cf")  # takes no room
    return unicodedata.normalize("NFKC", shown)


def get_shape(key: str) -> str:
    """Return what keys of `look_alike_key` share that differ in ASCII's look-alikes only, as rn and m, 1 and l."""
    return reduce(lambda shape, pair: shape.replace(*pair), _SHAPES, key)


def shape_of(column: InstrumentedAttribute[str]) -> ColumnElement[str]:
    """Return the same of a column with keys, as an SQL expression."""
    shape: ColumnElement[str] = reduce(lambda shape, pair: func.replace(shape, *pair), _SHAPES, column)  # type: ignore[arg-type]
    return shape
