import pandas as pd
import pytest

from analyses.line_figure import Line, time_figure
from circuits.errors import InputError

TABLE = pd.DataFrame(
    {"step": [0, 10, 20], "loss": [3.0, 2.0, 1.0], "loss_se": [0.1] * 3,
     "low": [2.5, 1.5, 0.5], "high": [3.5, 2.5, 1.5]}
)  # fmt: skip


def _figure(line, **options):
    return time_figure(TABLE, [line], title="Loss", unit="nats", **options)


def test_the_line_and_its_band_are_the_numbers_of_the_table():
    for line, low in (
        (Line("loss", "loss", se="loss_se"), 3.0 - 0.196),
        (Line("loss", "loss", "low", "high"), 2.5),
    ):
        lower, upper, drawn = _figure(line).data
        assert list(drawn.x) == [0, 10, 20]
        assert list(drawn.y) == [3.0, 2.0, 1.0]
        assert lower.y[0] == pytest.approx(low)
        assert upper.fill == "tonexty"
    assert len(_figure(Line("loss", "loss")).data) == 1


def test_levels_and_finite_marks_are_drawn():
    figure = _figure(
        Line("loss", "loss"), levels={"ln K": 2.3}, marks={"tau": 12.0, "never": float("inf")}
    )
    assert list(figure.data[-1].y) == [2.3, 2.3]
    assert [shape.x0 for shape in figure.layout.shapes] == [12.0]
    assert [note.text for note in figure.layout.annotations] == ["tau"]


def test_missing_columns_are_named():
    with pytest.raises(InputError, match=r"no column margin; the figure needs rows with step"):
        _figure(Line("margin", "margin"))
    with pytest.raises(InputError, match=r"the table has no rows"):
        time_figure(TABLE.head(0), [Line("loss", "loss")], title="", unit="nats")
