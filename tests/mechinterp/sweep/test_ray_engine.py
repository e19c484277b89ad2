import dataclasses
import sys

import pytest

from circuits.errors import InputError
from mechinterp.engines.ray_cluster import run_ray
from mechinterp.runs import Run
from mechinterp.sweep.jobs import jobs_of, left_to_do
from mechinterp.sweep.planning import directories_of, planned
from mechinterp.sweep.spec import read_spec
from mechinterp.sweep.stacks import one_line
from mechinterp.training_loop import train

ray = pytest.importorskip("ray")

SLOW = """
[base]
task = {name = "marginals", k = 3, n_b = 20}
model = {n_layers = 1, n_heads = 2, d_model = 16, n_ctx = 16}
training = {steps = 150, batch = 16, eval_every = 6, eval_examples = 8}
checkpoints = {save_every = 8, save_log = 0}
[seeds]
values = [0, 1, 2, 3]
fields = ["model.init_seed", "training.data_seed"]
"""


def _jobs(path, folder):
    spec = read_spec(path)
    runs = planned(spec)
    return jobs_of(spec, runs, directories_of(folder, runs), 1, "the command")


@pytest.fixture
def cluster(monkeypatch):
    """A cluster of a head without CPUs and two nodes of one CPU each, all on this machine."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    store = {"object_store_memory": 80 * 2**20}
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **store}
    )
    nodes = [made.add_node(num_cpus=1, **store) for _ in range(2)]
    made.wait_for_nodes()
    yield made, nodes
    made.shutdown()


# Ray warns of its own future, and leaves sockets to the collector.
@pytest.mark.filterwarnings("ignore")
def test_a_lost_node_costs_no_run_and_changes_no_bit(cluster, description, tmp_path):
    made, nodes = cluster
    jobs = _jobs(description(text=SLOW), tmp_path / "runs")
    finished = tmp_path / "finished"

    def work(job):
        said = one_line(job)
        with open(finished, "a") as file:
            file.write(f"{job.path.name}\n")
        return said

    def lose_a_node(at_work, ended):
        """Takes one of the two nodes away as soon as both runs on them are under way."""
        logs = [job.path / "metrics.jsonl" for job in jobs]
        if len(nodes) == 2 and sum(log.exists() and log.stat().st_size > 0 for log in logs) >= 2:
            made.remove_node(nodes.pop(), allow_graceful=False)

    ended = run_ray(jobs, work, made.address, 1, 0.0, lose_a_node)
    assert len(nodes) == 1
    assert ended == {job.path.name: "budget" for job in jobs}
    assert left_to_do(jobs) == []
    assert sorted(finished.read_text().split()) == sorted(job.path.name for job in jobs)
    for job in jobs:
        run = Run.open(str(job.path))
        alone = tmp_path / "alone" / job.path.name
        train(job.config, alone)
        assert run.checkpoint_hash(150) == Run.open(str(alone)).checkpoint_hash(150)
        assert (job.path / "metrics.jsonl").read_bytes() == (alone / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(("address", "reason"), [("127.0.0.1:1", "refused"), ("here", "invalid")])
def test_a_cluster_that_is_not_there_is_one_line(description, tmp_path, address, reason):
    jobs = _jobs(description(text=SLOW), tmp_path / "runs")
    with pytest.raises(InputError, match=rf"no Ray cluster at {address}: .*{reason}") as caught:
        run_ray(jobs, one_line, address, 1, 0.0, lambda *_: None)
    assert "\n" not in str(caught.value)


def test_without_ray_the_extra_is_named(description, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    jobs = [dataclasses.replace(job) for job in _jobs(description(text=SLOW), tmp_path / "runs")]
    with pytest.raises(InputError, match=r"pip install -e '\.\[ray\]'"):
        run_ray(jobs, one_line, None, 1, 0.0, lambda *_: None)
