"""Width, height and colour of an image, from its first bytes: nothing is decoded, no library is needed."""

import struct
from dataclasses import dataclass

HEADER_BYTES = 1 << 16  # a JPEG's size comes after its thumbnail and colour profile
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # JPEG's markers that name a size
EXIF = 0xE1
ORIENTATION = 0x0112
STANDALONE = frozenset(range(0xD0, 0xDA)) | {0x01}


@dataclass(frozen=True)
class ImageHeader:
    """channels: 1 for grey, 3 for colour. mime: of a page's picture; "" for what browsers do not show.

    bits: of a channel. is_turned: the camera noted that the picture is not upright.
    """

    width: int
    height: int
    channels: int
    mime: str = ""
    bits: int = 8
    has_alpha: bool = False
    is_turned: bool = False


def read_header(data: bytes) -> ImageHeader | None:
    """Return what the first bytes of an image say; None for another format than PNG, JPEG, GIF, BMP and PGM/PPM."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height, bits, colour = struct.unpack(">IIBB", data[16:26])
            has_alpha = colour in (4, 6) or b"tRNS" in data.partition(b"IDAT")[0]
            return ImageHeader(width, height, 1 if colour in (0, 4) else 3, "image/png", bits, has_alpha)
        if data.startswith(b"GIF8"):
            width, height = struct.unpack("<HH", data[6:10])
            return ImageHeader(width, height, 3, "image/gif")
        if data.startswith(b"BM"):
            width, height = struct.unpack("<ii", data[18:26])
            return ImageHeader(width, abs(height), 3, "image/bmp")
        if data[:2] in (b"P5", b"P6"):
            words = b" ".join(line.split(b"#")[0] for line in data[:512].split(b"\n")).split()
            return ImageHeader(int(words[1]), int(words[2]), 1 if words[0] == b"P5" else 3)
        return _jpeg(data) if data.startswith(b"\xff\xd8") else None
    except (struct.error, IndexError, ValueError):
        return None


def _jpeg(data: bytes) -> ImageHeader | None:
    at, is_turned = 2, False
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker in FRAMES:
            height, width, components = struct.unpack(">HHB", data[at + 5 : at + 10])
            return ImageHeader(width, height, 1 if components == 1 else 3, "image/jpeg", is_turned=is_turned)
        if marker == EXIF:
            is_turned = _is_turned(data[at + 4 :])
        at += 2 if marker in STANDALONE else 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return None


def _is_turned(segment: bytes) -> bool:
    """Return whether a JPEG's EXIF says that the picture is not upright."""
    if not segment.startswith(b"Exif\0\0"):
        return False
    tiff = segment[6:]
    order = "<" if tiff.startswith(b"II") else ">"
    start = struct.unpack_from(f"{order}I", tiff, 4)[0]
    for entry in range(struct.unpack_from(f"{order}H", tiff, start)[0]):
        tag, _, _, value = struct.unpack_from(f"{order}HHIH", tiff, start + 2 + 12 * entry)
        if tag == ORIENTATION:
            return int(value) > 1
    return False
