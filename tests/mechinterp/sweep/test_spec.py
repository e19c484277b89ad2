import pytest

from circuits.errors import InputError
from mechinterp.config import MARKOV_MODEL, MARKOV_TRAINING, from_json
from mechinterp.stopping import StopRule
from mechinterp.sweep.spec import read_spec


def test_a_description_is_read_whole(description):
    spec = read_spec(
        description('keep = "window"\nafter = ["analyses plateau --run {run}"]\nname = "mine"')
    )
    assert (spec.name, spec.keep, spec.after) == (
        "mine",
        "window",
        ("analyses plateau --run {run}",),
    )
    assert spec.grid == {"training.lr": (1e-3, 3e-3)}
    assert spec.seeds.values == (0, 1)
    assert spec.base["task"]["k"] == 3
    assert spec.base["task"]["mapping_seed"] == 42  # the default of the field
    assert spec.stop == StopRule()


def test_the_name_is_the_files_unless_it_is_given(description):
    assert read_spec(description(name="study-1.toml")).name == "study-1"


def test_markov_chains_begin_with_their_own_defaults(description):
    spec = read_spec(description(text='[base]\ntask = {name = "markov_chains", k = 2}'))
    config = from_json(spec.base)
    assert (config.model, config.training) == (MARKOV_MODEL, MARKOV_TRAINING)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = [", "not valid TOML"),
        ("speed = 3", "unknown part 'speed'; allowed: name, base, grid"),
        ('keep = "some"', "keep is 'some'; allowed: all, window, metrics"),
        ('[base.task]\nname = "chess"', "base.task.name is 'chess'; allowed: marginals, markov"),
        ("[base.task]\nkk = 3", "no field 'task.kk'; near ones: task.k"),
        ("[base.sorcery]\nk = 3", "no field 'sorcery.k'; near ones"),
        ("[grid]\n'task.k' = 3", "task.k is '3'; it has to be a list"),
        ("[[zip]]\n'task.k' = [1, 2]\n'task.n_b' = [1]", "lists of different lengths"),
        ("[zip]\n'task.k' = [1, 2]", r"write it as \[\[zip\]\]"),
        ("[seeds]\nvalues = [0, 1]", "says not which fields"),
        ("[seeds]\nvalues = []", "at least one seed"),
        ("[seeds]\nvalues = [0.5]", "a seed is '0.5'; it has to be of type int"),
        ("[stop]\nconverged = 0.1", "stop.converged is '0.1'"),
        ('[stop]\nexploded = "much"', "stop.exploded is 'much'; it has to be a number"),
        ("[stop]\nlate = 1", "stop has the unknown part 'late'"),
        ('name = "../up"', "cannot be the name of a run"),
        ("after = [3]", "after is '3'"),
    ],
)
def test_a_mistake_in_a_description_is_one_line_that_names_the_file(description, text, words):
    path = description(text=text)
    with pytest.raises(InputError, match=words) as caught:
        read_spec(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_file_or_too_large_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_spec(tmp_path / "none.toml")
    (tmp_path / "big.toml").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(InputError, match="larger than 1 MiB"):
        read_spec(tmp_path / "big.toml")
