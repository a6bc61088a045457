"""Experiments as frozen values, and the language of their claims.

In: TOML files. Out: cells to measure and claims to judge. May import servers and engine and what lies below them.
"""
