"""The schedules by which earlier texts of the rules could be broken, each as something that can come over any world.

A named replay lets one come over a calm world. A seed lets some come over worlds of its own, with other moments.
Not here, since what they are about is not in play in a world on the memory store: C12, H16, M6 (one grid, forks, a
partition's size: refused at the start or bounded elsewhere), H2, H13, V7 (STRICT), H15 (SQL), H17 (coordinators), H18
(data centres), V1 and M9 (events).
"""
