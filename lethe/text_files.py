"""Text that a person wrote on any system: UTF-8 with or without a signature, UTF-16 with one; any ends of lines.

Every file that a person writes is read here, so that one from Windows or a Mac means the same as one from Linux.
"""

import codecs
import unicodedata
from pathlib import Path

SIGNATURES = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose signature begins it
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode_text(data: bytes) -> str:
    """Return what the bytes say, without a signature and with newlines between lines.

    Raises ValueError naming the first line that is not UTF-8.
    """
    signature, encoding = next((each for each in SIGNATURES if data.startswith(each[0])), (b"", "utf-8"))
    try:
        text = data[len(signature) :].decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, len(signature) + error.start) + 1
        raise ValueError(f"line {line} is not {encoding.upper()} text: save the file as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(path: Path) -> str:
    """Return what a file says. Raises OSError, or ValueError as `decode_text` does."""
    return decode_text(path.read_bytes())


def composed(name: str) -> str:
    """Return a name with each letter and its accent as one character: Macs store them as two."""
    return unicodedata.normalize("NFC", name)
