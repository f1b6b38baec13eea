"""Benchmarks: methods x cells, computed once, resumed after any end, shown as tables."""
