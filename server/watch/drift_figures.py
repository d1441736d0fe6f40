"""One figure of drift, as metrics, page and command show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headrace.server.watch.drift.divergence import PSI_OF_JSD

Against = Literal["reference", "previous"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftFigure:
    """How far one feature of one domain, as served, is from what it is compared with.

    Attributes:
        run, domain, feature: of what
        against: `reference` (the profile in the manifest) or `previous` (the domain's interval before)
        jsd: Jensen-Shannon divergence, bits
        psi: population stability index
        floor: JSD that a sample of this size of the same distribution stays below with probability 0.99, bits
        samples: units that were sampled independently (windows, documents or steps)
        from_step, to_step: the confirmed steps that were sampled, the last one not included
        alarm: above the rule's bound now and in the interval before
    """

    run: str
    domain: str
    feature: str
    against: Against
    jsd: float
    psi: float
    floor: float
    samples: int
    from_step: int
    to_step: int
    alarm: bool

    def __post_init__(self) -> None:
        if not (0 <= self.jsd <= 1 and self.floor >= 0 and self.from_step < self.to_step and self.samples > 0):
            raise ValueError(f"no figure of drift: {self}")

    @property
    def value_floor_ratio(self) -> float:
        """JSD over its floor; 0 when both are 0."""
        return self.jsd / max(self.floor, 1e-12)

    @property
    def psi_floor(self) -> float:
        """The floor of PSI."""
        return PSI_OF_JSD * self.floor

    def as_dict(self) -> dict[str, Any]:
        """For JSON, with the ratio and the floor of PSI."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {**fields, "value_floor_ratio": self.value_floor_ratio, "psi_floor": self.psi_floor}
