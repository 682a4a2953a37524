"""One data set a file: `load(seed)` returns a `Problem`.

NAME
    How figures call the data.
RANDOM
    True where the seed changes the data or its split; others are run once.

Files are looked for below the folder GDM_DATA.
"""
