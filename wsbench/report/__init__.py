"""Reports: the HTML page of a campaign, pages over many campaigns, and exports for other programs.

In: an analysed campaign. Out: `report.html` and `trials.parquet` in the run folder, a site, JSON, CSV and others. It never
measures, so a new chart needs no new run. May import analysis and the packages below it; it and `run` do not import each other.
"""
