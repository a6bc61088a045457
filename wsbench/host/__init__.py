"""This host: its hardware, kernel settings, toolchains and processes.

In: commands, ports, names of sysctls. Out: processes on a leash, facts about the machine. May import records.
"""
