"""The load engine seen from Python: its binary and plan, several processes as one (shards), and its histograms.

In: a load and the binary. Out: one set of events and histograms per trial. May import monitoring, host and records. Does not import
`servers`, nor does `servers` import it.
"""
