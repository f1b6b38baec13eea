"""Compares methods with what their authors' programs did, optimizer step by optimizer step, in float64.

python -m tests.golden.trajectories DIR [--json FILE]
"""
