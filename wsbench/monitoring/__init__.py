"""Samples of processes, machine and kernel, and logs of language runtimes.

In: process ids, /proc, /sys, runtime logs. Out: lines of `resources.jsonl` and collections on the trial's clock. May import
host and records.
"""
