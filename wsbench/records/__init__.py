"""Every file of a run folder as frozen types, read and written safely.

In: files, trusted or not. Out: frozen values, or one plain error; the two kinds of errors are here too. Imports nothing else of
wsbench.
"""
