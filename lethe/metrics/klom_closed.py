"""KLOM with the greatest margin counted."""

from dataclasses import replace

from lethe.metrics import klom

METRIC = replace(
    klom.METRIC,
    id="klom_closed",
    title="KLOM on the forget set, last bin closed",
    function=klom.klom_closed,
    formula="as klom, with the upper end of the last bin included",
)
