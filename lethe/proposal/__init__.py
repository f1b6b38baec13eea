"""A competition proposed from an organiser's own data: `lethe competition new`, and the form in the browser."""
