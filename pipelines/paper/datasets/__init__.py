"""One data set a file: `load(seed)` returns a `Problem`.

NAME
    How figures call the data.
RANDOM
    True where the seed changes the data or its split; others are run once.
FILES, PAGE
    Files below the folder GDM_DATA that `load` cannot do without, and where they are to be had.
REAL_FILES
    Only where a generated twin takes the place of files that are not there: those files.
"""
