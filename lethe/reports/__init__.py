"""Tables and images of metrics: rankings, groups, Pareto, formats. No torch."""
