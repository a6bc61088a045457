"""The catalogue: manifests, builds, runtime settings, sessions of a server's roles, a server's life.

In: `servers/*/server.toml` and names such as `netty@4.2+jdk25`. Out: variants, artefacts, running servers. May import sessions,
monitoring, host and records; it and `engine` do not import each other.
"""
