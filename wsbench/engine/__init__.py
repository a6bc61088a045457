"""The load engine seen from Python: its binary, its shards, its histograms.

In: a load and the binary. Out: one set of events and histograms for each trial. May import monitoring, host and records; it and
`servers` do not import each other.
"""
