"""Resource use of a trial, observed from outside: samples of processes, machine and kernel, and the logs of language runtimes.

In: process ids, /proc, /sys, runtime logs. Out: lines of `resources.jsonl`, collections on the trial's clock. May import
host and records.
"""
