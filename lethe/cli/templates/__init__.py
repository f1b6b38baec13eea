"""What `lethe new` writes: modules that work, with `new_metric`, `new_method` or `new_dataset` in place of the name."""
