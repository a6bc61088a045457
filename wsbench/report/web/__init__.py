"""Pages over many campaigns: `serve` shows the campaigns of some folders live, `site` writes the same pages for publication.

Reads run folders only. Starts no campaign and never writes into a run folder.
"""
