"""Session files: declared conversations, compiled to the tables of the engine, or written from what a browser did.

In: TOML files, HTTP Archives. Out: `records.session_table.Session`, the text of a file. May import the layers below `servers`.
"""
