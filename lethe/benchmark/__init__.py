"""Benchmarks: methods x cells, computed once, resumed after any end, shown as tables; `lethe.benchmark(...)`."""

import lethe

lethe.make_callable(__name__)
