"""Values on disk: frozen types for every file in a run folder, file input and output, and the two error classes.

In: files, trusted or not. Out: frozen values, or a one-line error. Imports no other wsbench package.
"""
