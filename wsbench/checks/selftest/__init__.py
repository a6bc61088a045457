"""`wsbench selftest`: known delays, stalls and faults, measured by the engine and compared with the server's own log.

In: the engine's binary. Out: one row per check, with its allowed band.
"""
