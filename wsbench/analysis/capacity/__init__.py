"""Capacity: the highest load that keeps a promise, found by probes, with an interval.

`promises` reads a promise and says of one trial whether it was kept; `search` chooses the next load; `answers` reads the probes
of a campaign. `stats.crossing` estimates. Nothing is measured here.
"""
