"""Is a server fit to be measured, and does the engine measure right on this host?

In: a variant, an address or the engine's binary. Out: one result for each check. May import metrics, experiments, servers,
engine and what lies below them.
"""
