"""``python -m tests.benchmarks NAME``: what things cost, each against its floor in the same run.

The machine's load changes from one second to the next, so contenders take turns in short rounds, and what counts is
the ratio within a round.
"""
