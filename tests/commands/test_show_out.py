"""`ella show --out` names a folder."""

import pytest

from ella.cli import main


@pytest.mark.parametrize("name", ["level.gif", "level.mp4"])
def test_a_video_s_name_is_refused_before_anything_is_recorded(name, tmp_path, capsys):
    out = tmp_path / name
    assert main(["show", "goto-small", "--out", str(out)]) == 2
    assert f"--out must name a folder for the files, got {out}" in capsys.readouterr().err
    assert not out.exists()
