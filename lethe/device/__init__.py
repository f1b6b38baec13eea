"""Memory and arithmetic of the device that computes."""
