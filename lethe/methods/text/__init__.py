"""Unlearning methods for language models. Each file is by itself a valid submission."""
