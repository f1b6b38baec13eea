"""`python -m server`."""

from server.serve import main

main()
