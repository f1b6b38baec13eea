"""Metrics of language models: what a model still says about forgotten questions, and how well it answers others."""
