"""One method a file: `select(X, y, k)` returns features in the order of preference, the best first.

`X` has samples in rows, dense or sparse, without constant columns; `y` is -1 or +1. A method may return fewer than k
features. Each file also says:

NAME
    How figures call the method.
NESTED
    True where the best k features are the first k of a longer selection: then one run serves all numbers of features.
    Otherwise all features that `select` returns are used, and each number of features is a run of its own.
NEEDS_TRUTH
    True where `select` takes a fourth argument, the features that are known to be redundant.

A method may have `path(X, y, sizes)`, which yields (size, features) for increasing numbers of features from one run;
the time of each is that up to there. And it may have `tune(X, y)`, which chooses further arguments of `path` on the
training data, outside of the training time.
"""
