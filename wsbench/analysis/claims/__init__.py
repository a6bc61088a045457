"""Published statements as conditions over a campaign: `written` is how a claim stands in an experiment's file, `language` reads its
condition, `evaluate` says whether it holds. It knows no server by name and no file but the experiment's text.
"""
