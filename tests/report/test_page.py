"""The report's page in a real browser, its figures, and the command that writes them."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from ella.cli import main
from ella.intervals import wilson
from ella.report.figures import write_figures
from ella.report.groups import area
from ella.report.page import asset, render
from ella.report.summary import summarise
from ella.runs.run_evaluation import keep_evaluation

EVIL = '</script><img src="x" onerror="document.title=1"><b id="evil">$x_$'


def write_page(folders, path, **options):
    path.write_text(render(summarise(folders), **options), encoding="utf-8")
    return path


@pytest.fixture
def page(write_run, tmp_path):
    for task in ("goto-room", "pick-maze"):
        write_run(tmp_path / "runs" / task / "ppo", task=task, until=0.8)
        write_run(tmp_path / "runs" / task / "ella", task=task, until=0.4, method="ella")
    return write_page([tmp_path / "runs"], tmp_path / "index.html")


def keep_success(run, rates, *, backend="ella", frames=1_000_000, episodes=100):
    """As `ella eval --save`: sampled success by seed, greedy ones half as often."""
    results = [
        {"mode": mode, "seed": seed, "frames": frames, "success": {"value": rate * share}}
        for seed, rate in enumerate(rates)
        for mode, share in (("greedy", 0.5), ("sampled", 1.0))
    ]
    table = {"episodes": episodes, "backend": backend, "seed": 0, "results": results}
    keep_evaluation(run, table)


def test_what_policies_do_alone_comes_first(write_run, tmp_path):
    ppo = write_run(tmp_path / "ppo", until=0.8)
    shaped = write_run(tmp_path / "ella", until=0.4, method="ella")
    assert "fresh levels" not in render(summarise([tmp_path]))
    keep_success(ppo, (0.2, 0.3, 0.4))
    summary = summarise([tmp_path])
    found = {result.group.label: result.alone for result in summary.results}
    assert found["ELLA"] == {}
    assert found["PPO"]["ella", "sampled"].value == pytest.approx(0.3)
    assert found["PPO"]["ella", "sampled"].low == pytest.approx(
        0.3 - 4.303 * 0.1 / 3**0.5, abs=1e-3
    )
    assert found["PPO"]["ella", "greedy"].value == pytest.approx(0.15)
    keep_success(shaped, (0.9, 0.9, 0.9))
    keep_success(shaped, (0.8, 0.8, 0.8), backend="minigrid")
    found = {result.group.label: result.alone for result in summarise([tmp_path]).results}
    assert found["ELLA"]["ella", "sampled"] == wilson(270, 300), "seeds agree, levels do not"
    text = render(summarise([tmp_path]))
    assert re.search("seeds</th><th>alone on fresh levels</th><th>alone in minigrid</th>", text)
    assert "90.0 %" in text
    assert "80.0 %" in text
    assert ", after " not in text
    shorter = write_run(tmp_path / "rnd", method="rnd", frames=600_000)
    text = render(summarise([tmp_path]))
    assert text.count(", after 1 M)") == 3
    keep_success(shorter, (0.9, 0.9, 0.9), frames=600_000)
    assert render(summarise([tmp_path])).count(", after 1 M)") == 3


def test_what_is_not_of_the_final_policies_is_left_out(write_run, tmp_path):
    run = write_run(tmp_path / "ppo")
    keep_success(run, (0.2, 0.3))
    summary = summarise([tmp_path])
    assert summary.results[0].alone == {}, "a seed is missing"
    keep_success(run, (0.2, 0.3, 0.4), frames=500_000)
    summary = summarise([tmp_path])
    assert summary.results[0].alone == {}
    assert any("is of 0.5 million frames and left out" in text for text in summary.warnings)
    (run / "evaluation.json").write_text("{")
    summary = summarise([tmp_path])
    assert summary.results[0].alone == {}
    assert any("evaluation.json" in text for text in summary.warnings)


def test_policies_of_more_frames_than_are_compared_are_left_out(write_run, tmp_path):
    keep_success(write_run(tmp_path / "ppo"), (0.2, 0.3, 0.4))
    assert summarise([tmp_path], frames=1e6).results[0].alone
    assert summarise([tmp_path], frames=9e5).results[0].alone == {}


def test_policies_that_played_other_levels_are_named(write_run, tmp_path):
    for method in ("ppo", "ella"):
        keep_success(write_run(tmp_path / method, method=method), (0.2, 0.3, 0.4))
    assert not any("different levels" in text for text in summarise([tmp_path]).warnings)
    keep_success(tmp_path / "ella", (0.2, 0.3, 0.4), episodes=50)
    (warning,) = [text for text in summarise([tmp_path]).warnings if "different levels" in text]
    assert "(50 of seed 0, 100 of seed 0)" in warning


def explanation_text(probability):
    """What `ella explain --json` writes, with a sound judgement and one of this probability."""
    sound = '{"text": "go to the red ball", "probability": 0.75}'
    other = f'{{"text": "go to the grey box", "probability": {probability}}}'
    return f'{{"instruction": "get it", "judgements": [{sound}, {other}]}}'


def colours_in(screenshot):
    """Distinct colours of a picture, and the share of the most common one."""
    pixels = np.asarray(Image.open(io.BytesIO(screenshot)).convert("RGB")).reshape(-1, 3)
    _, counts = np.unique(pixels, axis=0, return_counts=True)
    return len(counts), counts.max() / counts.sum()


def paths(browser, label, chart=0):
    return browser.value(
        f'document.querySelectorAll(\'[data-chart="{chart}"] g[data-label="{label}"] path\').length'
    )


def tick_texts(browser):
    return browser.value("document.querySelector('.chart svg').textContent")


def test_page_loads_alone_and_draws(browser, page):
    browser.open(page)
    assert browser.problems == []
    assert {request for request in browser.requests if not request.startswith("data:")} == {
        page.as_uri()
    }
    # Two tasks of success, one profile, and two panels of ELLA for each task.
    assert browser.value("document.querySelectorAll('.chart svg').length") == 7
    assert paths(browser, "PPO") == paths(browser, "ELLA") == 2
    assert "frames of each seed (millions)" in tick_texts(browser)
    distinct, common = colours_in(browser.screenshot())
    assert distinct > 50
    assert common < 0.98


def test_methods_can_be_switched_off_and_on(browser, page):
    browser.open(page)
    rows = "document.querySelectorAll('tr[data-method=\"1\"]:not([hidden])').length"
    shown = browser.value(rows)
    assert shown > 0
    browser.click("button.method[data-method='1']")
    assert (
        browser.value("document.querySelector('button[data-method=\"1\"]').ariaPressed") == "false"
    )
    assert (paths(browser, "PPO"), paths(browser, "ELLA")) == (2, 0)
    assert browser.value(rows) == 0
    browser.click("button.method[data-method='0']")
    assert "every method is off" in tick_texts(browser)
    browser.click("button.method[data-method='1']")
    assert (paths(browser, "PPO"), paths(browser, "ELLA")) == (0, 2)
    assert browser.value(rows) == shown
    assert browser.problems == []


def test_axis_and_band_can_be_chosen_and_survive_a_reload(browser, page):
    browser.open(page)
    before = browser.value("document.querySelector('.chart .middle').getAttribute('d')")
    browser.click("button[data-value='seconds']")
    assert "training time (seconds)" in tick_texts(browser)
    browser.click("button[data-value='episodes']")
    assert "episodes of each seed" in tick_texts(browser)
    browser.click("button[data-value='iqm']")
    area = browser.value("document.querySelector('.chart .area').getAttribute('d')")
    browser.click("button[data-value='seeds']")
    assert paths(browser, "ELLA") == 3
    browser.click("button[data-value='mean']")
    assert browser.value("document.querySelector('.chart .area').getAttribute('d')") != area
    browser.click("button[data-value='frames']")
    assert browser.value("document.querySelector('.chart .middle').getAttribute('d')") == before
    browser.click("button[data-value='episodes']")
    browser.click("button[data-value='seeds']")
    browser.wait_for_load(lambda: browser.send("Page.reload"))
    assert "episodes of each seed" in tick_texts(browser)
    assert paths(browser, "ELLA") == 3
    assert browser.problems == []


def test_runs_trained_as_one_program_have_no_axis_of_seconds(write_run, tmp_path):
    write_run(tmp_path / "ppo", together=["ella"])
    write_run(tmp_path / "ella", method="ella", together=["ppo"])
    page = render(summarise([tmp_path]))
    assert '"axes":["frames","episodes"]' in page
    assert 'data-value="seconds"' not in page
    assert "have no curve over seconds" in page
    # A run of its own brings the axis back, for itself alone.
    write_run(tmp_path / "learn", method="learn")
    summary = summarise([tmp_path])
    assert '"axes":["frames","episodes","seconds"]' in render(summary)
    assert [group.label for group in summary.groups if "seconds" in group.clocks] == ["LEARN"]


def test_differences_have_welchs_interval_and_are_judged_by_the_margin(write_run, tmp_path):
    write_run(tmp_path / "ppo", until=0.50)
    write_run(tmp_path / "ella", until=0.40, method="ella", seed=7)
    words = {}
    for margin in (0.001, 0.2):
        summary = summarise([tmp_path], margin=margin)
        ppo, ella = summary.results
        assert ppo.difference is None
        areas = [area(one.group, summary.budget(one.group.task)) for one in (ella, ppo)]
        expected = stats.ttest_ind(*areas, equal_var=False)
        low, high = expected.confidence_interval(0.95)
        assert ella.difference.interval.low == pytest.approx(low)
        assert ella.difference.interval.high == pytest.approx(high)
        words[margin] = ella.difference.verdict
        assert summary.comparisons[-1].difference == ella.difference
        assert f">{words[margin]}</td>" in render(summary)
    assert words == {0.001: "better", 0.2: "equivalent"}


def test_seeds_without_any_success_have_no_interval_and_no_verdict(write_run, tmp_path):
    for method in ("ppo", "ella"):
        write_run(tmp_path / method, method=method, until=np.inf, seeds=2)
    summary = summarise([tmp_path])
    assert summary.results[1].difference.verdict == "undecided"
    assert summary.comparisons[0].difference.verdict == "undecided"
    page = render(summary)
    assert "<td>0.0 %</td><td>0.0 %</td><td>+0.0</td><td>undecided</td>" in page
    assert "[0.0, 0.0]" not in page


def test_a_ratio_of_seeds_that_arrive_together_is_not_sure(write_run, tmp_path):
    write_run(tmp_path / "ppo", until=0.8, seeds=2, lines=4)
    write_run(tmp_path / "ella", until=0.2, seeds=2, lines=4, method="ella")
    summary = summarise([tmp_path])
    assert summary.results[1].ratios[1].interval.value == 2
    assert "<td>2.00\u00d7</td>" in render(summary)
    # As soon as a seed arrives in another window there is an interval, sure or not.
    write_run(tmp_path / "more", until=0.4, seeds=2, lines=4, seed=2)
    assert "\u00d7 <small>[" in render(summarise([tmp_path]))


def test_long_labels_are_shortened_to_what_differs(browser, write_run, tmp_path):
    write_run(tmp_path / "ppo")
    for frames, bonus, last_state in (
        (0, 0.5, False), (20_000, 0.5, False), (50_000, 0.5, False), (0, 1.0, False), (0, 0.5, True)
    ):  # fmt: skip
        run = write_run(tmp_path / f"{frames}-{bonus}-{last_state}", method="ella-solvent")
        config = json.loads((run / "config.json").read_text())
        config["ella-solvent"] |= {"bonus": bonus, "last_state": last_state}
        config["ella-solvent"]["relevance"]["everything_frames"] = frames
        (run / "config.json").write_text(json.dumps(config))
    browser.open(write_page([tmp_path], tmp_path / "index.html"))
    ends = "[...document.querySelectorAll('[data-chart=\"0\"] .end')]"
    texts = browser.value(f"{ends}.map((end) => end.firstChild.data)")
    whole = browser.value(f"{ends}.map((end) => end.querySelector('title').textContent)")
    assert "ELLA solvent, bonus=1.0, last_state=False, everything_frames=0" in whole
    assert set(texts) == {
        "PPO", "ELLA solvent b=1.0", "ELLA sol\u2026 ef=20000", "ELLA sol\u2026 ef=50000",
        "ELLA solv\u2026 ls=True", "b=0.5 ls=False ef\u2026",
    }  # fmt: skip
    assert browser.problems == []


def test_hovering_tells_the_values(browser, page):
    browser.open(page)
    x, y = browser.centre(".chart svg")
    browser.mouse("mouseMoved", x, y)
    tip = browser.value("document.querySelector('.chart .tip').innerText")
    assert " K\n" in tip or " M\n" in tip
    assert "ELLA: 100 %" in tip
    assert "PPO: " in tip
    browser.mouse("mouseMoved", 2, 2)
    assert browser.value("document.querySelector('.chart .tip')") is None


def test_narrow_windows_have_no_sideways_scrolling(browser, page):
    browser.send(
        "Emulation.setDeviceMetricsOverride",
        width=400,
        height=800,
        deviceScaleFactor=1,
        mobile=False,
    )
    try:
        browser.open(page)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.value(wide) <= 0
    finally:
        browser.send("Emulation.clearDeviceMetricsOverride")


@pytest.mark.thorough
def test_text_from_files_is_only_text(browser, write_run, tmp_path):
    run = write_run(tmp_path / "<i>run", method="ella")
    write_run(tmp_path / "other")
    config = json.loads((run / "config.json").read_text())
    config["task"]["name"] = EVIL
    config["method"] = f"ella, {EVIL}"
    (run / "config.json").write_text(json.dumps(config))
    provenance = {"command": ["ella", EVIL], "versions": {"ella": EVIL}, "device": EVIL}
    (run / "run.json").write_text(json.dumps(provenance))
    judgement = {"text": EVIL, "probability": 1.0, "in_dataset": True, "oracle": True}
    explanation = {"instruction": EVIL, "judgements": [judgement]}
    (run / "why.json").write_text(json.dumps(explanation))
    summary = summarise([tmp_path])
    page = tmp_path / "index.html"
    page.write_text(render(summary, title=EVIL), encoding="utf-8")
    browser.open(page)
    assert browser.problems == []
    assert browser.value("document.title") == EVIL
    assert browser.value("document.querySelector('#evil')") is None
    assert browser.value("document.querySelectorAll('i, img').length") == 0
    headings = "[...document.querySelectorAll('.chart h3')].map(h => h.textContent).join(' ')"
    assert EVIL in browser.value(headings)
    assert EVIL in browser.value("document.querySelector('details.run pre').textContent")
    assert write_figures(summary, tmp_path / "figures")


def test_videos_and_explanations_of_a_run_are_shown(browser, write_run, tmp_path):
    run = write_run(tmp_path / "run", method="ella")
    (run / "exhibits").mkdir()
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue")]
    frames[0].save(run / "exhibits" / "agent.gif", save_all=True, append_images=frames[1:])
    frames[0].save(run / "exhibits" / "agent.png")
    frames[0].save(run / "relevance.png")
    (run / "broken.gif").write_bytes(b"no video")
    rows = [
        {"text": "go to the red ball", "probability": 0.9, "in_dataset": True, "oracle": True},
        {"text": "go to the grey box", "probability": 0.1, "in_dataset": False, "oracle": False},
    ]
    (run / "why.json").write_text(json.dumps({"instruction": "get it", "judgements": rows}))
    browser.open(write_page([run], tmp_path / "index.html"))
    assert browser.problems == []
    captions = "[...document.querySelectorAll('figcaption')].map((x) => x.textContent)"
    assert browser.value(captions) == ["exhibits/agent.gif", "relevance.png"]
    widths = "[...document.querySelectorAll('figure img')].map((x) => x.naturalWidth)"
    assert browser.value(widths) == [40, 40]
    text = browser.value("document.body.innerText")
    assert "get it (why.json)" in text
    assert "go to the red ball" in text
    assert "go to the grey box" not in text
    assert "In D: completed in every success so far" in text
    assert "broken.gif: damaged" in text


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("[" * 100_000, "damaged, not shown"),
        ('{"instruction": ', "damaged, not shown"),
        (explanation_text("1" + 400 * "0"), "1 damaged judgement(s) not shown"),
        (explanation_text("NaN"), "1 damaged judgement(s) not shown"),
        (explanation_text("-0.1"), "1 damaged judgement(s) not shown"),
    ],
)
def test_a_damaged_explanation_is_told_and_the_rest_shown(write_run, tmp_path, text, warning):
    run = write_run(tmp_path / "run")
    (run / "a.json").write_text(text)
    (run / "b.json").write_text(explanation_text("0.9"))
    summary = summarise([run], baseline="ppo")
    assert summary.warnings == (f"{run / 'a.json'}: {warning}",)
    page = render(summary)
    assert "get it (b.json)" in page
    assert page.count("go to the red ball") == 2 - ("judgement" not in warning)


def test_the_first_line_of_a_run_is_a_dot(browser, write_run, tmp_path):
    browser.open(write_page([write_run(tmp_path / "run", lines=1)], tmp_path / "index.html"))
    assert browser.value("document.querySelectorAll('.chart circle').length") == 1
    assert browser.problems == []


def test_a_live_page_reloads_itself(browser, write_run, tmp_path):
    run = write_run(tmp_path / "run", lines=5)
    page = write_page([run], tmp_path / "index.html", refresh=0.3, written="12:00:00")
    browser.open(page)
    assert "again every 0.3 s" in browser.value("document.body.innerText")
    write_page([run], page, title="Second look")
    while browser.value("document.title") != "Second look":
        browser.wait_for_load()
    assert browser.problems == []


@pytest.mark.thorough
def test_command_writes_page_and_figures(write_run, tmp_path, capsys):
    write_run(tmp_path / "runs" / "ppo", until=0.8)
    write_run(tmp_path / "runs" / "ella", until=0.4, method="ella")
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "ella" / "broken.gif").write_bytes(b"no video")
    out = tmp_path / "report"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "the folder is empty" in said.err
    assert "broken.gif: damaged, not shown" in said.err
    assert "index.html and 14 files" in said.out
    names = {path.stem for path in (out / "figures").iterdir()}
    assert names == {
        "learning-curves",
        "learning-curves-iqm",
        "area-under-curve",
        "frames-ratio",
        "probability-of-improvement",
        "performance-profiles",
        "ella",
    }
    for name in names:
        assert (out / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        distinct, common = colours_in((out / "figures" / f"{name}.png").read_bytes())
        assert distinct > 50, name
        assert common < 0.99, name
    # The file is ASCII in every locale, and the policy knows the program by its bytes.
    assert "goto-room: success rate" in (out / "index.html").read_text(encoding="ascii")
    assert asset("page.js").isascii()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{tmp}/nowhere"], "nothing to report on: {tmp}/nowhere: does not exist"),
        *(
            (
                ["{tmp}", "--watch", "--every", number],
                f"--every must be more than 0 and at most 86400 seconds, got {shown}",
            )
            for number, shown in [("0", "0"), ("inf", "inf"), ("nan", "nan"), ("1e12", "1e+12")]
        ),
        (["{tmp}", "--out", "{tmp}/file"], "{tmp}/file is a file; name a folder"),
        (["{tmp}", "--margin", "-1"], "margin must be >= 0, got -1"),
        (["{tmp}", "--margin", "nan"], "margin must be >= 0, got nan"),
        (["{tmp}", "--watch", "--margin", "-1"], "margin must be >= 0, got -1"),
        (["{tmp}", "--frames", "0"], "frames must be > 0, got 0"),
        (["{tmp}", "--watch", "--frames", "nan"], "frames must be > 0, got nan"),
    ],
)
def test_bad_input_is_one_line(words, said, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    words = [word.format(tmp=tmp_path) for word in words]
    if "--out" not in words:
        words += ["--out", str(tmp_path / "report")]
    assert main(["report", *words]) == 2
    assert capsys.readouterr().err == f"ella: {said.format(tmp=tmp_path)}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_report_that_cannot_be_written_is_one_line(write_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "ppo")
    (tmp_path / "file").write_text("")
    assert main(["report", "runs", "--out", "file/x"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "ella: cannot write to file/x: Not a directory"


def test_an_unknown_baseline_is_one_line_with_the_nearest(write_run, tmp_path, capsys):
    write_run(tmp_path / "runs" / "ella", method="ella")
    write_run(tmp_path / "runs" / "ppo")
    words = ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]
    assert main([*words, "--baseline", "pppo"]) == 2
    assert capsys.readouterr().err == "ella: unknown baseline 'pppo'; did you mean ppo?\n"
    assert not (tmp_path / "report").exists()


@pytest.mark.thorough
def test_watching_follows_a_run_until_interrupted(write_run, tmp_path):
    out = tmp_path / "report"
    words = ["report", str(tmp_path / "runs"), "--out", str(out), "--watch", "--every", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ella", *words], stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        # Nothing is there yet: it says so once, and waits.
        assert "does not exist; waiting" in process.stderr.readline()
        write_run(tmp_path / "unfinished" / "ppo")
        (tmp_path / "unfinished").rename(tmp_path / "runs")
        while not (out / "index.html").exists():
            assert process.poll() is None
            time.sleep(0.05)
        assert '"refresh":1.0' in (out / "index.html").read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    finally:
        process.kill()
        process.stderr.close()
    assert '"refresh":null' in (out / "index.html").read_text()
    assert (out / "figures" / "learning-curves.png").exists()
