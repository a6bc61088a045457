"""Experiments as frozen values: the question, the load, the sweep, figures, and claims with their language.

In: TOML files. Out: cells to measure and claims to judge. May import servers, engine and the layers below.
"""
