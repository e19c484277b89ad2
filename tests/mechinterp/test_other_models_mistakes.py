"""Mistakes with --model: each is one line that names what is wrong, and nothing is written."""

import json

import pytest

from mechinterp.trace import main
from tests.mechinterp.tiny_checkpoints import CONFIGS, D_VOCAB, N_CTX, own_model, pairs, save, write

GOOD = pairs((5, 7))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    save(own_model(CONFIGS["llama"]()), folder / "llama")
    (folder / "empty").mkdir()
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text("{}")
    (folder / "odd").mkdir()
    config = json.loads((folder / "llama" / "config.json").read_text())
    (folder / "odd" / "config.json").write_text(
        json.dumps(config | {"architectures": ["OddForCausalLM"]})
    )
    (folder / "bare").mkdir()
    (folder / "bare" / "config.json").write_text(json.dumps(config))
    write(GOOD, folder / "good.jsonl")
    return folder


def refused(capsys, monkeypatch, tmp_path, *argv):
    monkeypatch.chdir(tmp_path)
    assert main([str(word) for word in argv]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    assert captured.out == ""
    assert not any(path.is_file() for path in tmp_path.rglob("*") if path.suffix != ".jsonl")
    return captured.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--data", "good.jsonl"], "--data goes with --model, which is not given"),
        (["--ckpt", "last", "--metric", "kl"], "--metric goes with --model"),
        (["--ckpt", "last", "--revision", "3"], "--revision goes with --model"),
        ([], "--ckpt is missing: step_4000, first, last or a path; or give --model and --data"),
        (["--model", "llama"], "--model needs --data FILE.jsonl"),
        (["--model", "llama", "--data", "good.jsonl", "--run", "mine"], "--run is of a run"),
        (["--model", "llama", "--data", "good.jsonl", "--ckpt", "last"], "--ckpt is of a run"),
        (["--model", "llama", "--data", "good.jsonl", "--mechanism", "lens"], "--mechanism is of"),
        (["--model", "llama", "--data", "gone.jsonl"], "cannot read gone.jsonl: "),
        (["--model", "llama", "--data", "good.jsonl", "--metric", "odds"], "'odds'"),
        (["--model", "llama", "--data", "good.jsonl", "--revision", "3"], "llama is a directory"),
        (["--model", "pythai-70m", "--data", "good.jsonl"], "near matches: pythia-70m"),
        (["--model", "./gone", "--data", "good.jsonl"], "neither a directory nor a name"),
        (["--model", "x" * 5000, "--data", "good.jsonl"], "neither a directory nor a name"),
        (["--model", "empty", "--data", "good.jsonl"], "empty is no model directory: it needs"),
        (["--model", "good.jsonl", "--data", "good.jsonl"], "is no model directory"),
        (["--model", "run", "--data", "good.jsonl"], "run is a run of this toolkit: trace it with"),
        (["--model", "odd", "--data", "good.jsonl"], "odd (OddForCausalLM) cannot be loaded"),
        (["--model", "bare", "--data", "good.jsonl"], "bare (LlamaForCausalLM) cannot be loaded"),
        (["--model", "gpt2", "--revision", "3", "--data", "good.jsonl"], "has no checkpoints by"),
        (
            ["--model", "pythia-70m", "--revision", "step142500", "--data", "good.jsonl"],
            "is no checkpoint of EleutherAI/pythia-70m; near matches: 139000, 140000, 141000",
        ),
        (["--model", "qwen-1.8b", "--data", "good.jsonl"], "comes with code of its own"),
        (["--model", "llama", "--data", "good.jsonl", "--device", "warp"], "'warp' cannot be used"),
    ],
)
def test_a_mistake_in_the_options_is_one_line(argv, said, folder, capsys, monkeypatch, tmp_path):
    places = {"llama", "empty", "run", "odd", "bare", "good.jsonl"}
    argv = [folder / word if word in places else word for word in argv]
    assert said in refused(capsys, monkeypatch, tmp_path, *argv)


ROW = {"clean": [1, 2, 3], "corrupt": [3, 2, 1], "answer": 4}


@pytest.mark.parametrize(
    ("line", "argv", "said"),
    [
        ("{", [], "line 3 of pairs.jsonl is not JSON: "),
        ("[" * 100_000, [], "line 3 of pairs.jsonl is not JSON: "),
        ("[1, 2]", [], "line 3 of pairs.jsonl is a list: give an object with clean, corrupt"),
        ({"corrupt": [1]}, [], "line 3 of pairs.jsonl has no clean prompt"),
        (ROW | {"anwser": 3}, [], "line 3 of pairs.jsonl has the field 'anwser'; near matches: an"),
        (ROW | {"clean": 3}, [], "line 3 of pairs.jsonl: clean is 3: give text or a list of token"),
        (ROW | {"clean": []}, [], "clean is []: give text or a list of token ids, not empty"),
        (ROW | {"clean": [1, True, 2]}, [], "clean is [1, true, 2]: give text or a list of token"),
        (ROW | {"clean": ""}, [], 'clean is "": give text'),
        (ROW | {"answer": 2.5}, [], "answer is 2.5: give text or a list of token ids"),
        (
            ROW | {"corrupt": [3, 2]},
            [],
            "line 3 of pairs.jsonl: clean has 3 tokens and corrupt 2; both lengths must agree",
        ),
        (
            ROW | {"clean": [1, D_VOCAB, 3]},
            [],
            "line 3 of pairs.jsonl: clean holds token id 23; the model's ids are 0 to 22",
        ),
        (ROW | {"wrong": [-1]}, [], "wrong holds token id -1; the model's ids are 0 to 22"),
        (ROW | {"answer": 10**400}, [], "answer holds token id 1000"),
        (ROW | {"answer": [1, 2]}, [], "answer [1, 2] is 2 tokens: give one (mind the space"),
        (ROW | {"wrong": 4}, [], "line 3 of pairs.jsonl: answer and wrong are the same token, 4"),
        (
            ROW | {"clean": [1] * (N_CTX + 1)},
            [],
            "line 3 of pairs.jsonl: clean has 13 tokens; the model reads 1 to 12",
        ),
        (ROW | {"clean": "some text"}, [], "holds no tokenizer (tokenizer.json"),
        ({"clean": [1, 2]}, [], "line 3 of pairs.jsonl has no corrupt, which this metric and abl"),
        ({"clean": [1, 2]}, ["--ablation", "zero"], "line 3 of pairs.jsonl has no answer, which"),
    ],
)
def test_a_mistake_in_a_pair_names_its_line(
    line, argv, said, folder, capsys, monkeypatch, tmp_path
):
    rows = [json.dumps(GOOD[0]), "", line if isinstance(line, str) else json.dumps(line)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows))
    argv = ["--model", folder / "llama", "--data", "pairs.jsonl", *argv]
    assert said in refused(capsys, monkeypatch, tmp_path, *argv)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "pairs.jsonl holds no pairs: give one object a line"),
        (b"\n  \n", "pairs.jsonl holds no pairs: give one object a line"),
        (b'{"clean": "\xff"}', "pairs.jsonl is not UTF-8 text (byte 11)"),
        (json.dumps(ROW).encode(), "line 1 of pairs.jsonl is the only pair; an interval needs"),
    ],
)
def test_a_file_without_pairs_is_refused(data, said, folder, capsys, monkeypatch, tmp_path):
    (tmp_path / "pairs.jsonl").write_bytes(data)
    argv = ["--model", folder / "llama", "--data", "pairs.jsonl"]
    assert said in refused(capsys, monkeypatch, tmp_path, *argv)


def test_partners_that_are_the_clean_prompts_are_refused(folder, capsys, monkeypatch, tmp_path):
    same = [row | {"corrupt": row["clean"]} for row in GOOD]
    write(same, tmp_path / "pairs.jsonl")
    argv = ["--model", folder / "llama", "--data", "pairs.jsonl"]
    assert "corrupt equals clean" in refused(capsys, monkeypatch, tmp_path, *argv)
