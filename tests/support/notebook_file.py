"""A notebook as a file."""

import json


def notebook(*cells: str, **metadata: object) -> bytes:
    code = [{"cell_type": "code", "source": cell.splitlines(keepends=True), "outputs": []} for cell in cells]
    return json.dumps(
        {"nbformat": 4, "metadata": metadata, "cells": [{"cell_type": "markdown", "source": "# text"}, *code]}
    ).encode()
