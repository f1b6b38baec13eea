"""`python -m server`."""

import sys

from lethe.errors import AppError
from server.serve import main

try:
    main()
except AppError as error:
    sys.exit(f"error: {error.detail}")
