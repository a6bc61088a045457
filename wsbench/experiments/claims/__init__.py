"""Claims as an experiment states them: the TOML table, the language of `holds_if`, and the tree it is parsed into.

In: text. Out: frozen conditions. Judging them is `analysis.claims`.
"""
