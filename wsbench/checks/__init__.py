"""Proofs before numbers: does a server keep its contract, and does the instrument measure right on this host?

In: a variant, an address or the engine's binary. Out: one result for each check. May import metrics, experiments, servers,
engine and what lies below them.
"""
