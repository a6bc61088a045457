"""Values on disk: every file of a run folder as frozen types, how files are read and written, and the two kinds of errors.

In: files, trusted or not. Out: frozen values, or one plain error. Imports nothing else of wsbench.
"""
