"""`ella bound`: how large lambda may be."""

from ella.cli import main


def test_the_bound_of_the_paper(capsys):
    found = []
    for steps in (("--steps", "128"), ("--steps", "100"), ()):
        assert main(["bound", "putnext-room", *steps]) == 0
        first, *others = capsys.readouterr().out.splitlines()
        assert any(line.endswith(f"a warning beyond {first}") for line in others)
        found.append(first)
    assert found == ["0.0153", "0.0604", "0.267"]


def test_the_bound_is_that_of_the_horizon_that_binds(capsys):
    # combo-maze has 42 low-level instructions and horizons of 128 and 256.
    for words, horizon, steps in ((("--steps", "256"), 256, 256), ((), 128, 40)):
        assert main(["bound", "combo-maze", *words]) == 0
        said = capsys.readouterr().out
        by_hand = 0.99**steps * 20 * (1 - 0.9 * steps / horizon) / 42
        assert said.splitlines()[0] == f"{by_hand:.3g}"
        assert "horizon 128, 256" in said
