"""`deeplin sweep` and `deeplin status`: files in, tables and exit codes out."""

import json
from pathlib import Path

import numpy as np
import pytest

from deeplin import files, sweep
from deeplin.cli import main
from deeplin.sweep.store import Store


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    """Work in a folder of its own."""
    monkeypatch.chdir(tmp_path)


def command(capsys, *arguments):
    """Exit code, standard output and standard error of `deeplin ARGUMENTS`."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return stop.value.code, captured.out, captured.err


def write(name, text):
    Path(name).write_text(text)
    return name


TOY_FILE = 'experiment = "toy_experiment:TOY"\ncount = 6\nseed = 3\n'


def test_a_sweep_from_a_file_runs_and_goes_on(capsys):
    write("mine.toml", TOY_FILE)
    code, out, err = command(capsys, "sweep", "--config", "mine.toml")
    assert code == 0
    assert out.startswith("2 unit(s) computed, 0 finished before, 0 failed")
    assert "toy: 2 unit(s) to compute, 0 finished before" in err
    code, out, _ = command(capsys, "sweep", "--config", "mine.toml", "--json")
    assert code == 0
    assert {"computed": 0, "reused": 2, "folder": "results/mine"}.items() <= json.loads(out).items()
    assert len(sweep.read_table("results/mine")) == 6


def test_json_and_toml_mean_the_same(capsys):
    write("a.toml", TOY_FILE)
    write("a.json", json.dumps({"experiment": "toy_experiment:TOY", "count": 6, "seed": 3}))
    assert command(capsys, "sweep", "--config", "a.toml")[0] == 0
    code, out, _ = command(capsys, "sweep", "--config", "a.json", "--json")
    assert code == 0
    assert json.loads(out)["reused"] == 2


def test_the_seed_can_be_given_on_the_command_line(capsys):
    write("mine.toml", TOY_FILE)
    assert command(capsys, "sweep", "--config", "mine.toml", "--seed", 4, "--out", "four")[0] == 0
    assert Store("four").manifest["config"]["seed"] == 4
    assert Store("four").manifest["seed"] == 4


def test_shards_on_the_command_line_add_up(capsys):
    write("mine.toml", TOY_FILE)
    for k, complete in ((1, False), (2, True)):
        assert command(capsys, "sweep", "--config", "mine.toml", "--shard", f"{k}/2")[0] == 0
        code, out, _ = command(capsys, "status", "results/mine", "--json")
        assert code == 0
        assert json.loads(out)["complete"] is complete


def test_a_failed_unit_exits_with_1_and_is_shown_by_status(capsys):
    write("trouble", "3 raise\n")
    write("mine.toml", TOY_FILE + 'trouble = "trouble"\n')
    code, out, err = command(capsys, "sweep", "--config", "mine.toml")
    assert code == 1
    assert "1 failed" in out
    assert "RuntimeError: trouble in 3" in out
    assert "RuntimeError: trouble in 3" in err
    code, out, _ = command(capsys, "status", "results/mine")
    assert code == 1
    assert "1 of 2 units finished, 1 failed, nobody at work" in out
    assert "trouble in 3" in out
    Path("trouble").unlink()
    code, out, _ = command(capsys, "sweep", "--config", "mine.toml")
    assert code == 0
    assert out.startswith("1 unit(s) computed, 1 finished before, 0 failed")
    assert command(capsys, "status", "results/mine")[0] == 0


def test_status_names_files_that_are_not_trusted(capsys):
    write("mine.toml", TOY_FILE)
    command(capsys, "sweep", "--config", "mine.toml")
    write("results/mine/units/notes.txt", "mine")
    code, out, _ = command(capsys, "status", "results/mine")
    assert code == 1
    assert "not trusted: notes.txt: not a unit file" in out
    _, _, err = command(capsys, "sweep", "--config", "mine.toml")
    assert "set aside notes.txt" in err
    code, out, _ = command(capsys, "status", "results/mine")
    assert code == 0
    assert "set aside earlier: 1 file(s)" in out


def test_a_folder_that_cannot_be_written_while_sweeping_exits_with_1(capsys, monkeypatch):
    write("mine.toml", TOY_FILE)

    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "open", refuse, raising=False)
    code, _, err = command(capsys, "sweep", "--config", "mine.toml", "--workers", 0)
    assert code == 1
    assert "No space left on device" in err
    assert "To go on: deeplin sweep mine.toml --out results/mine" in err


@pytest.mark.parametrize(
    ("name", "text", "options", "sentence"),
    [
        ("mine.toml", TOY_FILE, ["--shard", "3/2"], "pass i/N with 1 ≤ i ≤ N"),
        ("mine.toml", TOY_FILE, ["--workers", "2", "--cluster", "tcp://x"], "pass one of them"),
        ("mine.toml", TOY_FILE + "colour = 1\n", [], "has no field colour"),
        ("mine.toml", "count = \n", [], "not valid TOML"),
        ("mine.json", "[1]", [], "pass the fields of a config"),
        ("mine.json", "{", [], "not valid JSON"),
        ("mine.yaml", "count: 1", [], "neither .json nor .toml"),
        ("mine.toml", 'experiment = "nothing"\n', [], "pass one of descent"),
        ("mine.toml", "experiment = 3\n", [], "pass a name or module:attribute"),
        ("mine.toml", "scales = [0.1]\n", [], "lacks learning_rates"),
        ("mine.toml", "scales = [0.1]\nlearning_rates = [-1]\n", [], "learning rate is -1"),
        ("mine.toml", "scales = []\nlearning_rates = [1]\n", [], "pass at least one"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(capsys, name, text, options, sentence):
    write(name, text)
    code, out, err = command(capsys, "sweep", "--config", name, *options)
    assert (code, out) == (2, "")
    assert sentence in err
    assert not Path("results").exists()


def test_a_config_that_is_not_there_exits_with_2(capsys):
    code, _, err = command(capsys, "sweep", "--config", "none.toml")
    assert code == 2
    assert "there is no file 'none.toml'" in err
    assert command(capsys, "status", "nowhere")[0] == 2


def test_a_sweep_of_descent_on_a_table_of_ones_own(capsys, rng):
    X = rng.normal(size=(40, 5))
    rows = np.column_stack([X, X @ [1.0, -0.5, 0.3, 0.2, 0.1]])
    np.savetxt("mine.csv", rows, delimiter=",", header="a,b,c,d,e,y", comments="")
    write(
        "mine.toml",
        "scales = [0.7]\nlearning_rates = [0.1]\ndepths = [2]\nrepetitions = 4\nsteps = 2000\n"
        '[data]\npath = "mine.csv"\ntarget = "y"\n',
    )
    code, _, err = command(capsys, "sweep", "--config", "mine.toml")
    assert code == 0, err
    table = sweep.read_table("results/mine")
    assert list(table["status"]) == ["converged"] * 4
    assert (table["distance"] < 1e-8).all()
    # Other data under the same name are another sweep: nothing old is reused for them.
    np.savetxt("mine.csv", 2 * rows, delimiter=",", header="a,b,c,d,e,y", comments="")
    code, _, err = command(capsys, "sweep", "--config", "mine.toml")
    assert code == 2
    assert "different: the content of the data" in err


def test_help_names_every_option(capsys):
    code, out, _ = command(capsys, "sweep", "--help")
    assert code == 0
    for option in ("--config", "--out", "--workers", "--cluster", "--shard", "--seed", "--json"):
        assert option in out


def test_the_only_sweep_of_a_folder_needs_no_name(capsys):
    write("mine.toml", TOY_FILE)
    assert command(capsys, "sweep")[0] == 0
    code, out, _ = command(capsys, "status")
    assert code == 0
    assert "results/mine" in out
    write("other.toml", TOY_FILE)
    code, _, err = command(capsys, "sweep")
    assert code == 2
    assert "there are 2 sweeps" in err
    assert command(capsys, "sweep", "other.toml")[0] == 0
    code, _, err = command(capsys, "status")
    assert code == 2
    assert "results/mine, results/other" in err


def test_without_any_sweep_status_says_so(capsys):
    code, _, err = command(capsys, "status")
    assert code == 2
    assert "there are 0 sweeps" in err
