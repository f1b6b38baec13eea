"""Membership attacks that several metrics share."""
