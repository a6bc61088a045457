"""What a server's runtime tells of itself: its garbage collections, its heap, its event loop.

`probes` asks for it when the server is started, by the runtime's own switches and without a change to the server; a room for each
runtime reads what came. `record` is what they all give. Metrics see only that.
"""
