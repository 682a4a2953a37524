"""The keys of a pipeline file, with their types and what they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from gdm_dask.twin_files import KINDS

_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Key:
    """A value: its type, and what it may be.

    Attributes
    ----------
    kind : type
        str, int, float or bool.
    required : bool
    choices : tuple
        The values that are allowed; all by default.
    between : tuple of numbers, optional
        Least and greatest.
    pattern : str
        That a text must match.
    several : bool
        Whether a list of such values is allowed too.
    pair : bool
        Whether a list of two such values is needed.
    """

    kind: type
    required: bool = False
    choices: tuple = ()
    between: tuple[float, float] | None = None
    pattern: str = ""
    several: bool = False
    pair: bool = False

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value; None where nothing is."""
        if self.pair and not (isinstance(value, list) and len(value) == 2):
            return f"a list of two values is needed, not {value!r}"
        if (self.several or self.pair) and isinstance(value, list):
            if not value:
                return "the list is empty: give a value, or leave the key out"
            single = replace(self, several=False, pair=False)
            return next(filter(None, map(single.problem, value)), None)
        if value in self.choices and type(value) is not bool:
            return None
        allowed = (int, float) if self.kind is float else (self.kind,)
        if type(value) not in allowed or (self.choices and self.kind is str):
            return f"{self._wanted()} is needed, not {value!r}"
        if self.between is not None and not self.between[0] <= value <= self.between[1]:
            return f"{self._wanted()} is needed, not {value!r}"
        if self.pattern and not re.fullmatch(self.pattern, value):
            return f"{value!r} does not have the form {self.pattern}"
        return None

    def _wanted(self) -> str:
        if self.choices and self.kind is str:
            return f"one of {', '.join(map(str, self.choices))}"
        text = _NAMES[self.kind]
        if self.between is not None:
            low, high = self.between
            text += f" from {low:g} on" if high == float("inf") else f" from {low:g} to {high:g}"
        if self.choices:
            text += f" or {', '.join(map(repr, self.choices))}"
        return text


@dataclass(frozen=True)
class Table:
    """A table: its keys, and what tables of any other name are."""

    keys: dict[str, Key | Table] = field(default_factory=dict)
    others: Table | None = None


_FROM_ONE = (1, float("inf"))
_TEXT, _SWITCH = Key(str), Key(bool)
_SCHEDULER = Key(str)

ACQUIRE = Table(
    {
        "path": _TEXT,  # a file or folder; a relative one is looked for in GDM_DATA, then in the working folder
        "url": Key(str, pattern="https?://.+"),
        "sha256": Key(str, several=True, pattern="[0-9a-f]{64}|on first use"),  # or one of several
        "page": _TEXT,  # where a person finds it
        "note": _TEXT,  # what else to say to someone who has to fetch it
    }
)

SET = Table(
    {
        "reader": Key(str, required=True, choices=("svmlight", "matrix", "arrays", "documents", "twin")),
        "files": Key(str, several=True),
        # svmlight
        "index_base": Key(int, between=(0, 1)),
        "on_error": Key(str, choices=("raise", "skip")),
        # matrix
        "labels": _TEXT,  # the acquired file of the labels, as a second one of `files`
        # arrays
        "x": _TEXT,
        "y": _TEXT,
        "classes": Key(int, several=True),
        "image": Key(int, pair=True, between=_FROM_ONE),
        "shift": Key(int, between=(0, 64)),
        "divide": Key(float, between=(1e-300, float("inf"))),
        "add": Key(float),
        # documents
        "text": _TEXT,
        "label": _TEXT,
        "strip_headers": _SWITCH,
        "analyzer": Key(str, choices=("byte", "char", "word")),
        "ngrams": Key(int, several=True, between=(1, 8)),
        "min_df": Key(int, between=_FROM_ONE),
        "unit_rows": _SWITCH,
        "hashed": Key(int, between=(2, 2**31)),
        "hashed_names": _SWITCH,
        # twin
        "like": Key(str, choices=KINDS),
        "scale": Key(float, between=(1e-9, 1e3)),
        "seed": Key(int, between=(0, 2**63 - 1)),
        "part": Key(str, choices=("train", "test")),
    }
)

SCHEMA = Table(
    {
        "name": Key(str, required=True, pattern="[A-Za-z0-9][A-Za-z0-9._-]*"),
        "description": _TEXT,
        "folder": _TEXT,
        "acquire": Table({}, others=ACQUIRE),
        "ingest": Table(
            {
                "train": SET,
                "test": SET,
                "split": Table(
                    {"test_fraction": Key(float, between=(0.001, 0.999)), "seed": Key(int, between=(0, 2**32 - 1))}
                ),
                "n_features": Key(int, between=_FROM_ONE),
                "dtype": Key(str, choices=("auto", "float32", "float64")),
                "codec": Key(str, choices=("lz4", "zstd", "none")),
                "block_size": _TEXT,
                "memory_limit": _TEXT,
                "scheduler": _SCHEDULER,
                "workers": Key(int, between=_FROM_ONE),
                "scratch": _TEXT,
            }
        ),
        "fit": Table(
            {
                "n_features_to_select": Key(int, between=_FROM_ONE),
                "tau": Key(float, between=(0, 0.999999)),
                "C": Key(float, between=(1e-12, 1e12)),
                "cut_size": Key(int, choices=("auto",), between=_FROM_ONE),
                "max_cuts": Key(int, between=_FROM_ONE),
                "tol": Key(float, between=(0, 1)),
                "matching": Key(str, choices=("greedy", "exact")),
                "groups": _SWITCH,
                "memory_limit": _TEXT,
                "scheduler": _SCHEDULER,
                "tune": Table(
                    {
                        "tau": Key(float, several=True, between=(0, 0.999999)),
                        "C": Key(float, several=True, between=(1e-12, 1e12)),
                        "cut_size": Key(int, several=True, choices=("auto",), between=_FROM_ONE),
                        "folds": Key(int, between=(2, 50)),
                        "samples": Key(int, between=(20, float("inf"))),
                    }
                ),
            }
        ),
        "evaluate": Table({"distributed": _SWITCH, "min_accuracy": Key(float, between=(0, 1))}),
        "report": Table(
            {"form": Key(str, choices=("html", "md", "json")), "image": Key(int, pair=True, between=_FROM_ONE)}
        ),
        "history": Table({"keep": Key(int, between=(2, 10**6)), "prometheus": _TEXT}),
    }
)
