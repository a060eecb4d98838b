"""Faults that are planted to see that the checks object: each replaces one production function, mostly by what it was
before the rule that it breaks was understood. The checks know nothing of them."""
