"""Every schedule by its name."""

from __future__ import annotations

from tests.simulation.schedules import critical, high, model
from tests.simulation.schedules.schedule import Schedule

SCHEDULES: dict[str, Schedule] = {
    schedule.name: schedule for module in (critical, high, model) for schedule in module.SCHEDULES
}
