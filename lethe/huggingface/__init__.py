"""Evaluation of causal language models in Hugging Face folders, as open-unlearning evaluates them.

Needs the extra `hf`. Nothing is downloaded, no pickle is loaded and no code of a folder is run.
"""
