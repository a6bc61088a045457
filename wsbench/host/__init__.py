"""This host: its hardware and kernel settings, installed toolchains, and every process that wsbench starts.

In: commands, ports, names of sysctls. Out: processes on a leash, facts about the machine. May import records.
"""
