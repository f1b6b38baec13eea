"""Notebooks as files, and programs of notebooks that several tests run."""

import json


def notebook(*cells: str, **metadata: object) -> bytes:
    code = [{"cell_type": "code", "source": cell.splitlines(keepends=True), "outputs": []} for cell in cells]
    return json.dumps(
        {"nbformat": 4, "metadata": metadata, "cells": [{"cell_type": "markdown", "source": "# text"}, *code]}
    ).encode()


LOOP = """
def change(state, i=0):
    state['3.bias'] += torch.randn(10)
    return state

for i in range(512):
    print('model', i)
    torch.save(change(original(), i), f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')
"""
FUNCTION = """
def unlearning(net, retain, forget, validation):
    with torch.no_grad():
        net[3].bias.add_(1)
"""
SCRIPT = """
%%writefile script.py
import sys
import numpy as np, random, torch
{seeds}
state = torch.load('/kaggle/input/neurips-2023-machine-unlearning/original_model.pth')
state['3.bias'] += torch.randn(10) + random.random() + np.random.rand()
torch.save(state, f'/kaggle/tmp/unlearned_checkpoint_{{sys.argv[1]}}.pth')
"""
SEEDS = "torch.manual_seed(1), random.seed(2), np.random.seed(3)"
