"""Pictures on pages: specifications for Vega, and drawings of our own."""
