"""Probes: what needs a model's weights and not only its outputs. Each turns a state_dict into arrays."""
