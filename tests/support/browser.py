"""Where Chromium is, for tests that look at pages as a person does."""

import shutil

# The shell first: the same engine without the browser's own windows, whose drawing takes a third of the time.
CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """Return the path of the system's Chromium, or None."""
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
