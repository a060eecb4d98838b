"""The supervised daemon that finishes what a crash or an outage left behind."""
