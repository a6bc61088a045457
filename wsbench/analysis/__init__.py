"""Many trials: the data set of a campaign, estimates with intervals, verdicts on claims, comparisons and history.

In: trials with their metrics and verdicts. Out: estimates, tiers, claim verdicts, tables. It starts nothing. May import metrics,
experiments and what lies below them.
"""
