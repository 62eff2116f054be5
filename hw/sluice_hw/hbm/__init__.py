"""HBM behind the slice port: the arbiter of its requesters, and back ends.

Nothing is imported here: the configuration looks at DRAM's timings, and everything else looks at the configuration.
"""
