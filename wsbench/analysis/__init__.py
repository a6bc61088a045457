"""Many trials: the data set, estimates, tiers, claims, comparisons, history.

In: trials with their metrics and verdicts. Out: estimates, tiers, claim verdicts, tables. It starts nothing. May import metrics,
experiments and what lies below them.
"""
