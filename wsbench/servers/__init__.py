"""The catalogue of servers: manifests, builds, runtime settings, and running servers from start to stop.

In: `servers/*/server.toml` and names such as `netty@4.2+jdk25`. Out: variants, artefacts, running servers. May import monitoring,
host and records. Does not import `engine`, nor does `engine` import it.
"""
