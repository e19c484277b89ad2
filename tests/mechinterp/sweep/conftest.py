import pytest

TINY = """
[base]
task = {name = "marginals", k = 3, n_b = 20}
model = {n_layers = 1, n_heads = 2, d_model = 16, n_ctx = 16}
training = {steps = 24, batch = 16, eval_every = 6, eval_examples = 8}
checkpoints = {save_every = 8, save_log = 0}

[grid]
"training.lr" = [1e-3, 3e-3]

[seeds]
values = [0, 1]
fields = ["model.init_seed", "training.data_seed"]
"""


@pytest.fixture
def description(tmp_path):
    """Writes a description of four tiny runs, with further lines, and gives its path."""

    def write(more="", text=TINY, name="tiny.toml"):
        path = tmp_path / name
        path.write_text(more + "\n" + text)
        return path

    return write
