"""Checks before measurement: conformance of a server to its contract, and a self-test of the engine on this host.

In: a variant, an address, or the engine's binary. Out: one result per check. May import metrics, experiments, servers,
engine and the packages below them.
"""
