"""How a competition file names a dataset that was uploaded to its server: `root = "upload:NAME"`."""

import re
from collections.abc import Mapping
from typing import Any

UPLOAD = "upload:"
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
NAME_RULE = "must be 1 to 64 of a-z, 0-9 and -, beginning and ending with a letter or number"
# Adapters that read pictures, arrays and small tables. The others' files are known to everybody, and some unpack to any
# length or are pickles.
ADAPTERS = ("folder", "kaggle", "numpy")


def uploaded_name(options: Mapping[str, Any]) -> str | None:
    """Return the name of the uploaded dataset that a dataset's options ask for, None if they ask for none."""
    root = options.get("root")
    return root.removeprefix(UPLOAD) if isinstance(root, str) and root.startswith(UPLOAD) else None
