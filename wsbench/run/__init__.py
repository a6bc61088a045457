"""A campaign in rounds, one trial, one load of a URL; on this host or a cluster.

In: an experiment and servers, or a URL. Out: a run folder. May import everything but report and cli.
"""
