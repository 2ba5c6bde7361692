"""`ella bound`: how large lambda may be."""

from ella.cli import main
from ella.commands import train
from ella.commands.options import parse


def test_the_bound_of_the_paper(capsys):
    found = []
    for steps in (("--steps", "128"), ("--steps", "100"), ()):
        assert main(["bound", "putnext-room", *steps]) == 0
        first, *others = capsys.readouterr().out.splitlines()
        assert any(line.endswith(f"a warning beyond {first}") for line in others)
        found.append(first)
    assert found == ["0.0153", "0.0604", "0.267"]


def test_training_that_warns_beyond_the_bound_is_named_with_its_options(capsys):
    usual = "ella train: a bonus of 0.25 by default, and a warning beyond 0.267"
    for words, line in (
        ([], usual),
        (
            ["--steps", "40", "--completions", "5"],
            "ella train unlock-maze --ella.optimal-steps 40 --ella.max-completions 5: a bonus of "
            "0.25 by default, and a warning beyond 1.92",
        ),
        (
            ["--reward-scale", "10"],
            "ella train unlock-maze --ppo.reward-scale 10: a bonus of 0.25 by default, and a "
            "warning beyond 0.134",
        ),
    ):
        assert main(["bound", "unlock-maze", *words]) == 0
        assert line in capsys.readouterr().out.splitlines()
        typed = [*line.partition(":")[0].split()[2:], "--out", "runs"]
        parse(train.Arguments, typed, prog="ella train", sections=train.sections())


def test_what_the_bound_does_not_cover_is_printed(capsys):
    for words, limited in (([], True), (["--steps", "128"], False)):
        assert main(["bound", "putnext-room", *words]) == 0
        said = capsys.readouterr().out
        assert "only in a deterministic world that the agent sees whole" in said
        assert ("only from the start of an episode" in said) == limited


def test_the_bound_is_that_of_the_horizon_that_binds(capsys):
    # combo-maze has 42 low-level instructions and horizons of 128 and 256.
    for words, horizon, steps in ((("--steps", "256"), 256, 256), ((), 128, 40)):
        assert main(["bound", "combo-maze", *words]) == 0
        said = capsys.readouterr().out
        by_hand = 0.99**steps * 20 * (1 - 0.9 * steps / horizon) / 42
        assert said.splitlines()[0] == f"{by_hand:.3g}"
        assert "horizon 128, 256" in said
