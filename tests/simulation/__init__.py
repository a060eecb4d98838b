"""The simulation: the real engine, directory writer and sweep under a seeded scheduler (design, section 5).

One thread; every greenlet of a simulated process goes on when the scheduler says so. A seed decides who is killed and
stopped, which clock is off, what becomes of each call to the store. The rules are checked at everything that happens.

Read in this order: `scheduler` (who goes on), `clocks`, `processes`, `connection` and `network` (between a process and
the store), `weather` (what a seed does to calls), `participants`, `world` and `course` (one seed), `checks`, `plants`,
`schedules`.
"""
