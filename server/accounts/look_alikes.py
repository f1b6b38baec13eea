"""Names that look the same are the same name: the idea of Unicode's UTS 39, for the scripts that people mix in earnest.

Letters of mathematics, full width and other styles are compatibility forms, which NFKC takes away. What it leaves are
letters of other scripts with the shape of a Latin one. The table is for Greek, Cyrillic and Armenian, by their shapes.
"""

import unicodedata

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


def look_alike_key(name: str) -> str:
    """Return what two names share that look the same, whatever their case, style or script; of ASCII only the case."""
    plain = unicodedata.normalize("NFKC", name).translate(_CAPITALS).casefold()
    letters = unicodedata.normalize("NFD", plain).translate(_TABLE)
    shown = "".join(letter for letter in letters if unicodedata.category(letter) != "Cf")  # takes no room
    return unicodedata.normalize("NFKC", shown)
