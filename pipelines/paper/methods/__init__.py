"""One file per method: `select(X, y, k)` returns features, best first.

`X` has samples in rows, dense or sparse, and no constant columns; `y` is -1 or +1. A method may return fewer than k
features. Each file also defines:

NAME
    Name of the method in figures.
NESTED
    True if the best k features are the first k of any longer selection, so that one run serves all numbers of features.
    If not, each number of features takes its own run, and all features that `select` returns are used.
NEEDS_TRUTH
    True if `select` takes a fourth argument, the features that are known to be redundant.

A method may define `path(X, y, sizes)`, which yields (size, features) for increasing numbers of features in one run;
the time of each is counted from the start. It may also define `tune(X, y)`, which chooses further arguments of `path`
on the training data; its time does not count.
"""
