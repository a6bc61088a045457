"""Telemetry of a server's runtime: garbage collections, heap, event loop.

`probes` enables it at server start with the runtime's own switches, so the server stays unchanged. A module for each runtime reads
its output and returns the types of `record`, the only ones that metrics see.
"""
