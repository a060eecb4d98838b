"""Recovery: what a crash or an outage left behind is found and handed to re-invocation, oldest first.

Decisions are generators without a store, a clock or a socket (`sweep`, `compaction`); `Sweeper` and `Compactor` carry
them out. A transaction is never run here: `stacksaga_flask.engine.reinvoke` does that, under a claim.
"""
