"""Campaigns to look through: `serve` shows those of some folders as they are now, `site` writes the same pages to publish.

It reads run directories and starts nothing, writes nothing into them, and lets nobody else write.
"""
