"""The HTML page of a campaign, pages over many campaigns, export formats.

In: an analysed campaign. Out: `report.html` and `trials.parquet` in the run folder, a site, JSON, CSV and others. It never
measures, so a new chart never needs a new run. May import analysis and what lies below it; it and `run` do not import each other.
"""
