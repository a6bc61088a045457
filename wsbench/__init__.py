"""wsbench: a benchmark system for WebSocket servers whose numbers can be proven."""

__version__ = "0.1.0"
