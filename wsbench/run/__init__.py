"""Measurement: a campaign in rounds, one trial, or one load of a URL, on this host or on a cluster.

In: an experiment and servers, or a URL. Out: a run folder. May import everything but report and cli.
"""
