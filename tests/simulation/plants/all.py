"""Every planted fault by its name."""

from __future__ import annotations

from tests.simulation.plants import directory, recording, recovery, rights, takeovers
from tests.simulation.plants.plant import Plant

PLANTS: dict[str, Plant] = {
    plant.name: plant for module in (rights, takeovers, recording, directory, recovery) for plant in module.PLANTS
}
