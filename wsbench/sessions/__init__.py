"""Session files: declared conversations, compiled to the tables of the engine.

In: TOML files. Out: `records.session_table.Session`. May import the layers below `servers`.
"""
