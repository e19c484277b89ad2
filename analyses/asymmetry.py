"""Asymmetry: is the forward task learned faster or slower than the reverse, and by which bar?"""

import math

import pandas as pd
import plotly.graph_objects as go

from analyses.answer import Answer
from analyses.catalogue import Asymmetry
from analyses.checkpoints import read_from
from analyses.directions.pairs import check_roles, seeds_of, setting_of
from analyses.directions.ratios import ratio_table
from analyses.directions.times import PAPER, PAPER_EVERY, PAPER_NATS, PAPER_SHARE, times_of
from analyses.line_figure import line_colour
from analyses.rows import Row, kept, records
from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme, themed
from mechinterp.runs import Run

BARS = {
    PAPER: "the paper's unequal bars",
    "first_token": "first-token loss of both, equal shares of ln 36",
    "answer": "loss of the whole answer of both, equal shares of ignorance",
    "own": "the paper's two losses, equal shares of ln 36 and of ln K",
}
"""What the bars are called."""


def answer(request: Asymmetry) -> Answer:
    """Reads the times off the logs of both tasks and compares them.

    Raises:
        InputError: a run of the wrong task or variant, runs that do not share the mapping, a log
            that is too short, or a share out of range.
    """
    if not request.shares or not all(0 < share < 1 for share in request.shares):
        raise InputError(
            f"shares is {request.shares}; each is a share of the loss of ignorance, above 0 and "
            "below 1, for example --shares 0.5"
        )
    forward = [Run.open(name, request.root) for name in request.forward]
    reverse = [Run.open(name, request.root) for name in request.reverse]
    check_roles(forward, reverse)
    times = _times(forward, reverse, tuple(dict.fromkeys(request.shares)))
    ratios = ratio_table(times)
    shown = times.assign(seeds=[", ".join(map(str, seeds)) for seeds in times["seeds"]])
    return Answer(
        summary=tuple(_summary(forward, reverse, ratios)),
        tables={"ratios": ratios, "times": shown},
        figures={"Asymmetry": ratio_figure(ratios)},
        provenance={
            "forward": [read_from(run) for run in forward],
            "reverse": [read_from(run) for run in reverse],
            "options": {"shares": list(request.shares)},
        },
    )


def _times(forward: list[Run], reverse: list[Run], shares: tuple[float, ...]) -> pd.DataFrame:
    both = [("forward", run) for run in forward] + [("reverse", run) for run in reverse]
    names = _setting_names([run for _, run in both])
    rows = []
    for role, run in both:
        about = {"setting": names[setting_of(run)], "seeds": seeds_of(run)}
        rows += [about | row for row in times_of(run, role, shares)]  # pyright: ignore
    return pd.DataFrame(rows)


def _setting_names(runs: list[Run]) -> dict[tuple[tuple[str, object], ...], str]:
    """Names every setting by K, n_b and whatever else differs between settings."""
    settings = list(dict.fromkeys(setting_of(run) for run in runs))
    differing = {
        name
        for at, (name, _) in enumerate(settings[0])
        if len({repr(setting[at]) for setting in settings}) > 1
    } | {"k", "n_b"}
    return {
        setting: ", ".join(f"{name} {value}" for name, value in setting if name in differing)
        for setting in settings
    }


def _summary(forward: list[Run], reverse: list[Run], ratios: pd.DataFrame) -> list[str]:
    variant = forward[0].config.task.variant  # pyright: ignore
    lines = [
        f"{len(forward)} forward runs ({variant}) against {len(reverse)} reverse runs (bz_to_a) on "
        "the same mappings; forward time over reverse time, 95 % interval over seeds",
        f"the paper's bars are {PAPER_NATS} nat of first-token loss, seen every "
        f"{PAPER_EVERY['forward']} steps, against {PAPER_SHARE} ln K of candidate loss, seen every "
        f"{PAPER_EVERY['reverse']}; equal bars are held for five rows and interpolated",
    ]
    for setting, group in ratios.groupby("setting", sort=False):
        lines.append(f"{setting}:")
        lines += [f"  {_line(row)}" for row in records(group)]
        lines.append(f"  {_verdict(records(group))}")
    return lines


def _line(row: Row) -> str:
    share = "" if math.isnan(row["share"]) else f" ({row['share']:g})"
    text = f"{BARS[row['bar']]}{share}: "
    if row["bound"] == "undefined":
        return f"{text}undefined, runs of both tasks end before their bars"
    said = "" if row["bound"] == "exact" else f"{row['bound']} "
    text += f"{said}{row['ratio']:.2f}x"
    if not math.isnan(row["low"]):
        text += f" ({row['low']:.2f} to {row['high']:.2f})"
    elif row["pairs"] == 1:
        text += ", no interval from one pair"
    text += f", step {row['forward']:.0f} against {row['reverse']:.0f}, {row['pairs']} pairs"
    if row["by"] == "mappings":
        text += " of mappings"
    return text + (f"; {row['unreached']} runs end first" if row["unreached"] else "")


def _verdict(rows: list[Row]) -> str:
    """Says whether the paper's bars and the equal ones call the same task the slower one."""
    paper = side(next(row for row in rows if row["bar"] == PAPER))
    equal = {side(row) for row in rows if row["bar"] != PAPER}
    if equal == {paper}:
        return f"all bars agree: forward is {paper}"
    words = " or ".join(sorted(equal))
    return f"it depends on the bar: forward is {paper} by the paper's, {words} by equal ones"


def side(row: Row) -> str:
    """Is forward slower, faster, or not told apart? By the interval, or by a bound."""
    if row["bound"] == "at least" and row["ratio"] > 1:
        return "slower"
    if row["bound"] == "at most" and row["ratio"] < 1:
        return "faster"
    if row["low"] > 1:
        return "slower"
    return "faster" if row["high"] < 1 else "not told apart"


def ratio_figure(ratios: pd.DataFrame, theme: Theme = LIGHT) -> go.Figure:
    """Draws forward over reverse time for every setting, the paper's bars beside equal ones."""
    figure = go.Figure()
    labels = dict.fromkeys(zip(ratios["bar"], ratios["share"].fillna(-1.0), strict=True))
    for number, (bar, share) in enumerate(labels):
        same = (ratios["bar"] == bar) & (ratios["share"].fillna(-1.0) == share)
        used = kept(ratios, same.to_numpy())
        name = bar if share < 0 else f"{bar} {share:g}"
        known = used["low"].notna()
        figure.add_scatter(
            x=used["setting"].to_list(), y=used["ratio"].to_list(), mode="markers", name=name,
            marker={
                "color": line_colour(number, theme),
                "size": 10,
                "symbol": ["circle" if b == "exact" else "triangle-up" if b == "at least" else
                           "triangle-down" for b in used["bound"]],
            },
            error_y={
                "array": (used["high"] - used["ratio"]).where(known, 0).to_list(),
                "arrayminus": (used["ratio"] - used["low"]).where(known, 0).to_list(),
                "symmetric": False,
                "color": line_colour(number, theme),
            },
        )  # fmt: skip
    figure.add_hline(y=1, line={"color": theme.ink, "dash": "dot", "width": 1})
    return themed(
        figure,
        theme,
        "Forward time over reverse time, by bar",
        xaxis={"title": {"text": "setting"}, "type": "category"},
        yaxis={"title": {"text": "forward / reverse"}, "type": "log"},
        height=460,
    )
