"""This host: hardware, kernel settings, installed toolchains, and every process that wsbench starts.

In: commands, ports, sysctl names. Out: processes on a leash, facts about the machine. May import records.
"""
