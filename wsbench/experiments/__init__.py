"""Experiments as frozen values, and the language of their claims.

In: TOML files. Out: cells to measure and claims to judge. May import servers, engine and the layers below.
"""
