import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from circuits.errors import InputError
from circuits.figures.theme import DARK
from mechinterp.minimal_models.figures import (
    bias_figure,
    capacity_figure,
    landscape_figure,
    tau_figure,
    trajectory_figure,
)

LANDSCAPE = pd.DataFrame(
    [(b, d, 10 * b + d) for b in (0.0, 1.0, 2.0) for d in (0.0, 5.0)],
    columns=["beta", "delta", "excess"],
)
PATH = pd.DataFrame(
    {"time": [0.0, 1.0], "beta": [0.0, 2.0], "delta": [0.0, 5.0], "excess": [0.3, 0.1]}
)


def test_the_surface_has_beta_along_x_and_delta_along_y():
    surface = landscape_figure(LANDSCAPE).data[0]
    assert isinstance(surface, go.Surface)
    assert np.asarray(surface.z).tolist() == [[0, 10, 20], [5, 15, 25]]
    assert np.asarray(surface.x).tolist() == [0, 1, 2]
    assert np.asarray(surface.y).tolist() == [0, 5]


def test_the_path_lies_on_the_surface():
    figure = landscape_figure(LANDSCAPE, PATH, theme=DARK)
    assert len(figure.data) == 2
    assert np.asarray(figure.data[1].x).tolist() == [0, 2]
    assert np.asarray(figure.data[1].z) == pytest.approx([0.303, 0.103])
    assert figure.layout.paper_bgcolor == DARK.paper


def test_trajectories_have_three_panels_and_one_legend_entry_a_case():
    both = pd.concat([PATH.assign(removed="none"), PATH.assign(removed="c_beta")])
    figure = trajectory_figure(both, label="removed")
    assert len(figure.data) == 6
    assert [t.name for t in figure.data if t.showlegend] == ["none", "c_beta"]
    assert {t.yaxis for t in figure.data} == {"y", "y2", "y3"}
    assert len(trajectory_figure(PATH).data) == 3


def test_biases_of_0_are_left_off_the_logarithmic_axis():
    table = pd.DataFrame(
        {
            "length": [50, 100] * 2,
            "mu": [0.0, 0.0, 0.5, 0.5],
            "c_beta": [0.002, 0.001] * 2,
            "c_beta_se": [0.0001] * 4,
            "c_delta": [0.0, 0.0, 0.001, 0.0005],
            "c_delta_se": [0.0, 0.0, 0.0001, 0.0001],
            "closed_form": [0.004, 0.003] * 2,
        }
    )
    names = [trace.name for trace in bias_figure(table).data]
    assert names == ["c_beta, mu 0", "c_beta, mu 0.5", "c_delta, mu 0.5", "closed form (mu 0)"]


def test_the_law_goes_through_the_longest_length():
    table = pd.DataFrame(
        {
            "n_over_log": [10.0, 20.0, 20.0, 40.0],
            "tau": [150.0, 200.0, 400.0, np.nan],
            "reached": [True, True, True, False],
            "length": [50, 100, 100, 200],
            "sample": [0, 0, 1, 0],
        }
    )
    points, law = tau_figure(table).data
    assert len(points.x) == 3
    assert np.asarray(law.y).tolist() == [150.0, 300.0]
    with pytest.raises(InputError, match="no cliff was reached; give the descents more steps"):
        tau_figure(table.tail(1))


def test_capacities_have_whiskers_to_the_next_k_and_lower_bounds_a_triangle():
    table = pd.DataFrame(
        {
            "d_task": [4, 2, 1],
            "d_hidden": [32, 32, 32],
            "k_c": [16.0, 8.0, 0.0],
            "next_k": [math.inf, 16.0, 4.0],
            "bounded": [False, True, True],
        }
    )
    (trace,) = capacity_figure(table).data
    assert np.asarray(trace.x).tolist() == [2, 4]
    assert list(trace.error_y.array) == [8.0, 0.0]
    assert list(trace.marker.symbol) == ["circle", "triangle-up"]
    with pytest.raises(InputError, match="no model memorised the smallest K"):
        capacity_figure(table.tail(1))


def test_errors_say_what_is_missing():
    with pytest.raises(InputError, match="no column excess; it needs beta, delta, excess"):
        landscape_figure(LANDSCAPE[["beta", "delta"]])
    with pytest.raises(InputError, match="the landscape has holes"):
        landscape_figure(LANDSCAPE.head(5))
    with pytest.raises(InputError, match="the table is empty"):
        trajectory_figure(PATH.head(0))
