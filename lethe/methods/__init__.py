"""Unlearning methods of the literature. Each file that defines `unlearning` is by itself a valid submission."""
