"""`deeplin sweep` and `deeplin status`: files in, tables and exit codes out."""

import json
from pathlib import Path

import numpy as np
import pytest

from deeplin import files, sweep
from deeplin.sweep.store import Store

TOY_FILE = 'experiment = "toy_experiment:TOY"\ncount = 6\nseed = 3\n'


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    """Work in a folder of its own, with a sweep of two units in it."""
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(TOY_FILE)


def test_a_sweep_from_a_file_runs_and_goes_on(command):
    code, out, err = command("sweep", "--config", "mine.toml")
    assert code == 0
    assert out.startswith("2 unit(s) computed, 0 finished before, 0 failed")
    assert "toy: 2 unit(s) to compute, 0 finished before" in err
    same = {"experiment": "toy_experiment:TOY", "count": 6, "seed": 3}
    Path("mine.json").write_text(json.dumps(same))
    for name in ("mine.toml", "mine.json"):  # JSON and TOML mean the same
        code, out, _ = command("sweep", "--config", name, "--json")
        expected = {"computed": 0, "reused": 2, "folder": "results/mine"}
        assert (code, expected.items() <= json.loads(out).items()) == (0, True)
    assert len(sweep.read_table("results/mine")) == 6


def test_the_seed_can_be_given_on_the_command_line(command):
    assert command("sweep", "--config", "mine.toml", "--seed", 4, "--out", "four")[0] == 0
    manifest = Store("four").manifest
    assert manifest["config"]["seed"] == manifest["seed"] == 4


def test_shards_on_the_command_line_add_up(command):
    for k, complete in ((1, False), (2, True)):
        assert command("sweep", "--config", "mine.toml", "--shard", f"{k}/2")[0] == 0
        code, out, _ = command("status", "results/mine", "--json")
        assert (code, json.loads(out)["complete"]) == (0, complete)


def test_a_failed_unit_exits_with_1_and_is_shown_by_status(command):
    Path("trouble").write_text("3 raise\n")
    Path("mine.toml").write_text(TOY_FILE + 'trouble = "trouble"\n')
    code, out, err = command("sweep", "--config", "mine.toml")
    assert code == 1
    assert "1 failed" in out
    assert "RuntimeError: trouble in 3" in out
    assert "RuntimeError: trouble in 3" in err
    code, out, _ = command("status", "results/mine")
    assert code == 1
    assert "1 of 2 units finished, 1 failed, nobody at work" in out
    assert "trouble in 3" in out
    Path("trouble").unlink()
    code, out, _ = command("sweep", "--config", "mine.toml")
    assert code == 0
    assert out.startswith("1 unit(s) computed, 1 finished before, 0 failed")
    assert command("status", "results/mine")[0] == 0


def test_status_names_damaged_files(command):
    command("sweep", "--config", "mine.toml")
    damaged = next(Path("results/mine/units").iterdir())
    damaged.write_bytes(b"")
    code, out, _ = command("status", "results/mine")
    assert code == 1
    assert f"damaged: {damaged.name}; the next call computes its unit again" in out
    assert f"{damaged.name} is damaged, and made again" in command("sweep")[2]
    code, out, _ = command("status", "results/mine")
    assert code == 0
    assert "2 of 2 units finished" in out


def test_a_folder_that_cannot_be_written_while_sweeping_exits_with_1(command, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "open", refuse, raising=False)
    monkeypatch.setattr("sys.argv", ["deeplin", "sweep", "--config", "mine.toml"])
    code, _, err = command("sweep", "--config", "mine.toml", "--workers", 0)
    assert code == 1
    assert "No space left on device" in err
    assert "are kept in results/mine. To go on: deeplin sweep --config mine.toml" in err


@pytest.mark.parametrize(
    ("name", "text", "options", "sentence"),
    [
        ("mine.toml", TOY_FILE, ["--shard", "3/2"], "pass i/N with 1 ≤ i ≤ N"),
        ("mine.toml", TOY_FILE, ["--workers", "2", "--cluster", "tcp://x"], "pass one of them"),
        (
            "mine.toml",
            TOY_FILE + "colour = 1\n",
            [],
            "unexpected keyword argument 'colour'",
        ),
        ("mine.toml", "count = \n", [], "not valid TOML"),
        ("mine.json", "[1]", [], "pass the fields of a config"),
        ("mine.json", "{", [], "not valid JSON"),
        ("mine.yaml", "count: 1", [], "neither .json nor .toml"),
        ("mine.toml", 'experiment = "nothing"\n', [], "pass one of descent"),
        ("mine.toml", "experiment = 3\n", [], "pass a name or module:attribute"),
        ("mine.toml", "scales = [0.1]\n", [], "missing a required argument: 'learning_rates'"),
        ("mine.toml", "scales = [0.1]\nlearning_rates = [-1]\n", [], "learning rate is -1"),
        ("mine.toml", "scales = []\nlearning_rates = [1]\n", [], "pass at least one"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(command, name, text, options, sentence):
    Path(name).write_text(text)
    code, out, err = command("sweep", "--config", name, *options)
    assert (code, out) == (2, "")
    assert sentence in err
    assert not Path("results").exists()


def test_a_sweep_of_descent_on_a_table_of_ones_own(command, rng):
    X = rng.normal(size=(40, 5))
    rows = np.column_stack([X, X @ [1.0, -0.5, 0.3, 0.2, 0.1]])
    np.savetxt("mine.csv", rows, delimiter=",", header="a,b,c,d,e,y", comments="")
    Path("mine.toml").write_text(
        "scales = [0.7]\nlearning_rates = [0.1]\ndepths = [2]\nrepetitions = 4\nsteps = 2000\n"
        '[data]\npath = "mine.csv"\ntarget = "y"\n',
    )
    code, _, err = command("sweep", "--config", "mine.toml")
    assert code == 0, err
    table = sweep.read_table("results/mine")
    assert list(table["status"]) == ["converged"] * 4
    assert (table["distance"] < 1e-8).all()
    # Other data under the same name are another sweep: nothing old is reused for them.
    np.savetxt("mine.csv", 2 * rows, delimiter=",", header="a,b,c,d,e,y", comments="")
    code, _, err = command("sweep", "--config", "mine.toml")
    assert code == 2
    assert "different: the content of the data" in err


def test_the_only_sweep_of_a_folder_needs_no_name(command):
    def refused(*arguments):
        code, _, err = command(*arguments)
        return code == 2 and err

    assert "there are 0 sweeps" in refused("status")
    assert command("sweep")[0] == 0
    code, out, _ = command("status")
    assert code == 0
    assert "results/mine" in out
    Path("other.toml").write_text(TOY_FILE)
    assert "there are 2 sweeps" in refused("sweep")
    assert command("sweep", "other.toml")[0] == 0
    assert "results/mine, results/other" in refused("status")
    assert "there is no file 'none.toml'" in refused("sweep", "--config", "none.toml")
    assert refused("status", "nowhere")
