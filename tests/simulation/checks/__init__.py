"""The rules, checked at everything that happens. They know the world and nothing of faults or plants."""
