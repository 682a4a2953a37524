"""Reports as Markdown, to read or mail."""

from __future__ import annotations

import re
from typing import Any

from gdm_dask.report.summary import headline
from gdm_dask.system.names import printable
from gdm_dask.system.resources import format_bytes

#: Maximum rows of a table, and maximum members named in it.
MAX_ROWS = 200
MAX_MEMBERS = 8


def escape(text: str, limit: int = 80) -> str:
    r"""Escape a name so that Markdown shows it literally; cut long names and escape control characters.

    >>> print(escape("<b>*a*|b\n"))
    \<b\>\*a\*\|b\\n
    """
    cut = printable(text, limit)
    if len(text) > limit:
        cut += f" ({len(text):,} characters)"
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&$])", r"\\\1", cut)


def to_markdown(report: dict[str, Any]) -> str:
    """Return a report as Markdown."""
    parts = [f"# {escape(report['title'])}", report["sentence"], _facts(report), _supports(report)]
    for name, section in (
        ("importance", _importance),
        ("stability", _stability),
        ("comparison", _comparison),
    ):
        if report[name] is not None:
            parts.append(section(report))
    parts += [_cuts(report), _parameters(report), f"Made with {report['made_with']}."]
    return "\n\n".join(parts) + "\n"


def _table(head: list[str], rows: list[list[str]], total: int | None = None) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows[:MAX_ROWS]]
    total = len(rows) if total is None else total
    if total > MAX_ROWS:
        lines.append(f"\n{total - MAX_ROWS:,} more are left out here.")
    return "\n".join(lines)


def _facts(report: dict[str, Any]) -> str:
    facts, data = report["facts"], report["data"]
    rows = [["features", f"{data['n_features']:,}"]]
    if data["class_counts"] is not None:
        counted = zip(data["classes"], data["class_counts"], strict=True)
        is_numbers = data["kind"] == "numbers"  # then all samples are one class
        texts = (f"{count:,}" if is_numbers else f"{count:,} of class {escape(name)}" for name, count in counted)
        rows.append(["samples", ", ".join(texts)])
    rows.append(["supports", f"{facts['n_supports']:,}"])
    if facts["n_affiliated"] is not None:
        affiliated = f"{facts['n_affiliated']:,}, the largest group has {facts['largest_group']:,} members"
        rows.append(["affiliated features", affiliated])
    for entry in report["accuracy"]:
        name = "r2" if "r2" in entry else "accuracy"
        value = "not defined" if entry[name] is None else f"{entry[name]:.4f}"
        value += f" on {escape(entry['name'])}"
        if entry.get("interval"):
            value += ", 95% interval {:.4f} to {:.4f}".format(*entry["interval"])
        if name == "accuracy":
            value += f"; {entry['largest_class']:.4f} by always naming the largest class"
        rows.append([f"{entry['kind']} {name.replace('r2', 'R2')}", value])
    gap = f"gap {facts['gap']:.3g}, " if facts["wanted"] is None else ""  # else it says nothing about the supports
    rows += [
        ["correlation", facts["measure"]],
        ["redundancy rate", f"{facts['redundancy_rate']:.4f}"],
        ["cuts", f"{facts['n_cuts']}, {gap}{facts['outcome']}"],
        ["C", f"{facts['C']:.3g}, {facts['trade_off']}"],
        ["time", f"{facts['seconds']:.2f} s"],
        ["read", format_bytes(report["counts"].get("bytes_read", 0))],
    ]
    return _table(["", ""], rows)


def _supports(report: dict[str, Any]) -> str:
    supports, groups, sides = report["supports"], report["groups"], report["data"]["sides"]
    names = _member_names(report)
    rows = []
    for k, (name, weight) in enumerate(zip(supports["name"], supports["weight"], strict=True)):
        frequency = "" if supports["frequency"] is None else f"{sum(row[k] for row in supports['frequency']):,}"
        size, members = "", ""
        if groups is not None:
            size = f"{groups['size'][k]:,}"
            shown = list(zip(groups["feature"][k], groups["rho"][k], strict=True))[1 : MAX_MEMBERS + 1]
            members = ", ".join(f"{escape(names.get(f, str(f)), 30)} ({rho:+.2f})" for f, rho in shown)
        side = escape(sides[supports["side"][k]])
        note = "" if supports["note"] is None or not supports["note"][k] else f" ({escape(supports['note'][k])})"
        rows.append([str(k + 1), escape(name) + note, f"{weight:+.4g}", side, frequency, size, members])
        if len(rows) > MAX_ROWS:
            break
    head = ["", "support", "weight", "speaks for", "samples", "group", "strongest members (correlation)"]
    return "## Supports\n\n" + _table(head, rows, len(supports["name"]))


def _member_names(report: dict[str, Any]) -> dict[int, str]:
    if report["names"] is None:
        return {}
    known = dict(zip(report["names"]["feature"], report["names"]["name"], strict=True))
    return known | dict(zip(report["supports"]["feature"], report["supports"]["name"], strict=True))


def _importance(report: dict[str, Any]) -> str:
    found = report["importance"]
    best = headline(report["accuracy"])
    assert best is not None
    measure = "R2" if "r2" in best else "accuracy"
    text = (
        f"## Importance of groups\n\nDrop of {measure} on the {best['kind']} data when members are permuted together."
    )
    if found["accuracy_members"] is not None:
        text += (
            f" The {measure} is {found['accuracy_supports']:.4f} with the supports only, "
            f"{found['accuracy_members']:.4f} with {found['n_members']:,} supports and affiliated features."
        )
    order = sorted(range(len(found["support"])), key=lambda k: -(found["group"] or found["support"])[k])
    rows = []
    for k in order:
        whole = ["", ""] if found["group"] is None else [f"{found['group'][k]:.4f}", f"{found['alone'][k]:.4f}"]
        rows.append([escape(report["supports"]["name"][k]), f"{found['support'][k]:.4f}", *whole])
    head = ["support", "support, own model", "whole group, all members", "support alone, all members"]
    return text + "\n\n" + _table(head, rows)


def _stability(report: dict[str, Any]) -> str:
    found = report["stability"]
    rows = [
        [escape(name), f"{group:.0%}", f"{alone:.0%}"]
        for name, group, alone in zip(
            report["supports"]["name"], found["group_frequency"], found["support_frequency"], strict=False
        )
    ]
    return (
        f"## Stability\n\n{found['n_repeats']} fits on {found['fraction']:.0%} of the samples each. Groups: Jaccard "
        f"{found['group_jaccard']:.3f}, Kuncheva {found['group_kuncheva']:.3f}. Single supports: Jaccard "
        f"{found['support_jaccard']:.3f}, Kuncheva {found['support_kuncheva']:.3f}.\n\n"
        + _table(["support", "its group was found", "it was the support"], rows)
    )


def _comparison(report: dict[str, Any]) -> str:
    found = report["comparison"]
    text = (
        f"## Against {escape(found['name'])}\n\n{found['n_kept']:,} supports kept, {found['n_gained']:,} gained, "
        f"{found['n_lost']:,} lost; {found['n_moved']:,} features moved to the group of another support."
    )
    gained = [[escape(name), f"{weight:+.4g}", escape(was or "none")] for name, weight, was in found["gained"]]
    lost = [[escape(name), f"{weight:+.4g}", escape(now or "none")] for name, weight, now in found["lost"]]
    return "\n\n".join(
        [
            text,
            _table(["gained", "weight", "covered before by"], gained, found["n_gained"]),
            _table(["lost", "weight", "covered now by"], lost, found["n_lost"]),
        ]
    )


def _cuts(report: dict[str, Any]) -> str:
    cuts = report["cuts"]
    rows = []
    for t, (lower, upper) in enumerate(zip(cuts["lower"], cuts["upper"], strict=True)):
        gap = (upper - lower) / upper if upper > 0 else 0.0
        rows.append([str(t + 1), str(cuts["n_supports"][t]), f"{lower:.6g}", f"{upper:.6g}", f"{gap:.2%}"])
    proved = "" if report["facts"]["certificate"] is None else f"{report['facts']['certificate']}\n\n"
    return f"## Bounds\n\n{proved}" + _table(["cut", "supports", "lower", "upper", "gap"], rows)


def _parameters(report: dict[str, Any]) -> str:
    shown = {**report["parameters"], **{k: v for k, v in report["run"].items() if isinstance(v, str)}}
    return "## Parameters\n\n" + _table(["", ""], [[escape(k), escape(str(v))] for k, v in shown.items()])
