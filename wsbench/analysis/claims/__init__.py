"""Published claims as conditions over a campaign. `values` and `comparing` turn a condition into comparisons, `evaluate` returns
the verdicts, `text` formats them. Knows no server by name and no file but the experiment's text.
"""
