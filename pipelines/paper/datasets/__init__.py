"""One file per data set: `load(seed)` returns a `Problem`.

NAME
    Name of the data in figures.
RANDOM
    True if the seed changes the data or its split; others are run once.
FILES, PAGE
    Files below the folder GDM_DATA that `load` needs, and where to get them.
REAL_FILES
    Files that a generated lookalike replaces if they are missing; only for sets that have one.
"""
