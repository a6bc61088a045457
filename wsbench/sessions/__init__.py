"""Session files: declared conversations, compiled for the engine, or written from a recording.

In: TOML files, HTTP Archives. Out: `records.session_table.Session`, the text of a file. May import the layers below `servers`.
"""
