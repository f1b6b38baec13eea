"""A run's output made safe to show: text, without the characters that steer a terminal or a page."""

import re

# Controls but for newline and tab; what turns text around; what cannot be seen; half a surrogate.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_ESCAPES = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]{0,512}(?:\x07|\x1b\\\\)|[@-Z\\\\-_])")
CUT = "\n[...]\n"


def readable_log(log: bytes, *, max_chars: int = 16_384) -> str:
    """Return the log as plain text of at most `max_chars`: its beginning and, mostly, its end."""
    lines = log.decode("utf-8", errors="replace").replace("\r\n", "\n").split("\n")
    text = "\n".join(line.rpartition("\r")[2] for line in lines)  # without a progress bar's earlier states
    text = _UNSAFE.sub("\ufffd", _ESCAPES.sub("", text))
    if len(text) <= max_chars:
        return text
    kept = max(0, max_chars - len(CUT))
    beginning = kept // 4
    return text[:beginning] + CUT + text[len(text) - (kept - beginning) :]
