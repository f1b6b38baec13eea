"""What may be wrong with a folder or with a task's data."""

from lethe.errors import AppError


class InvalidModelFolder(AppError):
    """A folder holds no causal language model that can be loaded; the message says what is missing or refused."""


class InvalidTaskData(AppError):
    """A task's data are missing or malformed; the message names the file, the line and what is allowed."""
