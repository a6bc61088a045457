"""Many trials: the data set of a campaign, estimates with intervals, claim verdicts, comparisons and history.

In: trials with their metrics and verdicts. Out: estimates, tiers, claim verdicts, tables. Starts no process that measures. May
import metrics, experiments and the packages below them.
"""
