"""The catalogue of servers: manifests, builds, runtime settings, and a server's life from start to stop.

In: `servers/*/server.toml` and names such as `netty@4.2+jdk25`. Out: variants, artefacts, running servers. May import monitoring,
host and records; it and `engine` do not import each other.
"""
