"""Scripts that make records and compare settings, run as their users run them, on few pictures."""

import sys

import pytest
import torch
from scripted import script

from vitlab import recipe
from vitlab.engine.storage import read_json
from vitlab.given import load_data
from vitlab.pretrain import page

QUICK = ("limit=100", "epochs=1", "batch=50", "width=16", "depth=1", "validation=0.05")


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Runs a script in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *words: str) -> None:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
        script(name).main()

    return run


def test_a_record_grows_by_the_seeds_that_it_lacks_and_is_fine_tuned_from(call, tmp_path) -> None:
    words = ("digits-mae", *QUICK, "decoder_width=16", "--keep", "kept")
    call("record", *words, "--seeds", "1")
    (first,) = read_json(tmp_path / "results/records/digits-mae.json")["runs"]
    call("record", *words, "--seeds", "2")
    record = read_json(tmp_path / "results/records/digits-mae.json")
    assert record["runs"][0] == first, "what is there is not trained again"
    assert [run["seed"] for run in record["runs"]] == [0, 1]
    with pytest.raises(SystemExit, match="a record of other settings"):
        call("record", "digits-mae", "width=24")

    labelled = ("objective=supervised", "--start", "kept/digits-mae", "--name", "tuned", "--keep", "kept")
    call("record", "digits-mae", *QUICK, *labelled, "--seeds", "2")
    tuned = read_json(tmp_path / "results/finetuned/tuned.json")
    for before, after in zip(record["runs"], tuned["runs"], strict=True):
        assert after["pretraining"] == {key: value for key, value in before.items() if key != "log"}
        started, given = (tmp_path / f"kept/{name}-{after['seed']}" for name in ("tuned", "digits-mae"))
        assert (started / "start.safetensors").read_bytes() == (given / "weights.safetensors").read_bytes()
    row = page.finetuned([tuned], "../results").splitlines()[-1]
    assert row.startswith("| [`tuned`](../results/finetuned/tuned.json) | digits | ")


def test_settings_are_compared_on_held_out_pictures_alone(call, tmp_path, capsys) -> None:
    tune, data = script("tune"), load_data(recipe("digits"), None)
    halves = tune.without_test(data, labelled=False)
    assert torch.equal(torch.cat([halves.validation.pictures, halves.test.pictures]), data.validation.pictures)
    assert abs(len(halves.validation) - len(halves.test)) <= 1
    assert torch.equal(tune.without_test(data, labelled=True).test.pictures, data.validation.pictures)

    (tmp_path / "walk.txt").write_text(f"base | digits {' '.join(QUICK)}\nplain |\nmae | objective=mae\n")
    call("tune", "walk.txt")
    plain, mae = capsys.readouterr().out.splitlines()[-2:]
    assert "] plain: " in plain
    assert "%/" in plain
    assert "neighbours" not in plain
    assert "] mae: " in mae
    assert "neighbours" in mae
