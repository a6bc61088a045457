"""wsbench: a benchmark system for WebSocket servers whose numbers can be proven."""


def __getattr__(name: str) -> str:
    """`__version__`, which stands in engine/Cargo.toml alone; read when it is asked for."""
    if name != "__version__":
        raise AttributeError(name)
    from importlib import metadata

    return metadata.version("wsbench")
