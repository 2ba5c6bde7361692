"""The report's page: one HTML file that needs nothing else, neither a server nor the network."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from ella.intervals import Estimate
from ella.report.artefacts import Artefacts, StoredExplanation
from ella.report.figures import ELLA_PANELS, band
from ella.report.palette import Colour, colours
from ella.report.runs import Run
from ella.report.statistics import THRESHOLDS, Ratio
from ella.report.summary import (
    CLOCKS,
    FINAL_SHARE,
    PROFILE_THRESHOLDS,
    SUCCESS,
    Group,
    Standing,
    Summary,
)

TIMES = "\u00d7"
NOTHING = "<td>–</td>"  # noqa: RUF001
MAX_JUDGEMENTS = 12
AXES = ("frames", *CLOCKS)


def render(
    summary: Summary, *, title: str = "ELLA report", refresh: float | None = None, written: str = ""
) -> str:
    """The page as text. With `refresh` it reloads itself every so many seconds; `written` says when
    it was made."""
    charts: list[dict[str, Any]] = []
    body = [
        _head(summary, title, refresh, written),
        _notes(summary.remarks),
        _controls(summary),
        _learning(summary, charts),
        _numbers(summary),
        _across(summary, charts),
        _ella(summary, charts),
        _artefacts(summary.artefacts),
        _runs(summary.runs),
    ]
    data = {"labels": summary.labels, "axes": AXES, "charts": charts, "refresh": refresh}
    script = asset("page.js")
    return Template(asset("page.html")).substitute(
        title=escape(title),
        style=asset("page.css") + _colour_rules(summary.labels),
        body="\n".join(body),
        data=_json(data),
        script=script,
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def asset(name: str) -> str:
    """A file of the page that is written by hand."""
    return files("ella.report").joinpath("assets", name).read_text(encoding="ascii")


def _json(data: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _colour_rules(labels: Sequence[str]) -> str:
    paint: list[Colour] = list(colours(labels).values())
    light, dark = (
        "".join(f"--c{index}:{pair[shade]};" for index, pair in enumerate(paint))
        for shade in (0, 1)
    )
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _head(summary: Summary, title: str, refresh: float | None, written: str) -> str:
    seeds = sum(len(group.ends) for group in summary.groups)
    counts = [
        _plural(len(summary.tasks), "task"),
        _plural(len(summary.labels), "method"),
        _plural(len(summary.runs), "run"),
        _plural(seeds, "seed"),
    ]
    live = f" Written at {escape(written)}, again every {refresh:g} s." if refresh else ""
    return f'<h1>{escape(title)}</h1><p class="lead">{" · ".join(counts)}.{live}</p>'


def _notes(remarks: Sequence[str]) -> str:
    if not remarks:
        return ""
    rows = "".join(f"<li>{escape(remark)}</li>" for remark in remarks)
    return (
        f'<details class="notes" open><summary>{_plural(len(remarks), "remark")} on the data'
        f"</summary><ul>{rows}</ul></details>"
    )


def _controls(summary: Summary) -> str:
    methods = "".join(
        f'<button class="method" data-method="{index}" aria-pressed="true" '
        f'style="--own:var(--c{index})">{escape(label)}</button>'
        for index, label in enumerate(summary.labels)
    )
    bands = {"mean": "mean ± std", "iqm": "IQM, 95 % interval", "seeds": "every seed"}
    return (
        '<noscript><div class="notes">The charts need JavaScript; the tables and the figures next '
        "to this page do not.</div></noscript>"
        f'<div class="bar"><div class="set">{methods}</div>'
        f"{_choices('over', 'x', {axis: axis for axis in AXES})}"
        f"{_choices('show', 'band', bands)}</div>"
    )


def _choices(name: str, group: str, options: dict[str, str]) -> str:
    buttons = "".join(
        f'<button class="choice" data-group="{group}" data-value="{value}" aria-pressed="false">'
        f"{escape(text)}</button>"
        for value, text in options.items()
    )
    return f'<div class="set" role="group"><span class="name">{name}</span>{buttons}</div>'


def _section(title: str, about: str, content: str) -> str:
    return f'<section><h2>{title}</h2><p class="about">{about}</p>{content}</section>'


def _learning(summary: Summary, charts: list[dict[str, Any]]) -> str:
    boxes = "".join(
        _curve_box(charts, summary.of_task(task), SUCCESS, f"{task}: success rate")
        for task in summary.tasks
    )
    about = (
        "Of the episodes that end while training, how many succeed. A frame is one step of one "
        "environment of one seed; episodes are a seed's too, seconds those of all seeds of a run "
        "side by side. Both are means over seeds at the same frame."
    )
    return _section("Learning curves", about, f'<div class="charts">{boxes}</div>')


def _curve_box(charts: list[dict[str, Any]], groups: Sequence[Group], name: str, title: str) -> str:
    lines = []
    for group in groups:
        if name not in group.measures:
            continue
        curves = group.measures[name]
        axes = {"frames": group.frames, **group.clocks}
        lines.append(
            {
                "label": group.label,
                "x": {axis: _numbers_of(values, 9) for axis, values in axes.items()},
                "bands": {
                    kind: [_numbers_of(line) for line in band(curves, kind)]
                    for kind in ("mean", "iqm")
                },
                "seeds": [_numbers_of(curve) for curve in curves],
            }
        )
    return _box(charts, {"title": title, "percent": name != "decomposition_size", "lines": lines})


def _box(charts: list[dict[str, Any]], chart: dict[str, Any]) -> str:
    charts.append(chart)
    return (
        f'<div class="chart" data-chart="{len(charts) - 1}"><h3>{escape(chart["title"])}</h3></div>'
    )


def _numbers_of(values: np.ndarray, digits: int = 4) -> list[float | None]:
    """Rounded; None for NaN."""
    return [None if np.isnan(v) else float(f"{v:.{digits}g}") for v in values.tolist()]


def _row(summary: Summary, label: str, cells: Iterable[str]) -> str:
    index = summary.labels.index(label)
    return (
        f'<tr data-method="{index}"><td><span class="dot" style="background:var(--c{index})">'
        f"</span>{escape(label)}</td>{''.join(cells)}</tr>"
    )


def _table(headings: Sequence[str], rows: str) -> str:
    cells = "".join(f"<th>{heading}</th>" for heading in headings)
    return (
        f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>'
        "</div>"
    )


def _numbers(summary: Summary) -> str:
    baseline = escape(summary.baseline or "")
    headings = ["method", "seeds", "final success", "area under curve"]
    levels = [f"{100 * threshold:.0f} %" for threshold in THRESHOLDS]
    headings += [f"frames to {level}" for level in levels]
    if summary.baseline:
        headings += [f"ratio at {level}" for level in levels]
    tables = []
    for task in summary.tasks:
        rows = ""
        for standing in (s for s in summary.standings if s.group.task == task):
            cells = [
                f"<td>{len(standing.group.ends)}</td>",
                f"<td>{_share(standing.final)}</td>",
                f"<td>{_share(standing.area)}</td>",
                *(_frames_cell(standing, reached) for reached in standing.reached),
            ]
            if summary.baseline:
                cells += [_ratio_cell(ratio) for ratio in standing.ratios]
            rows += _row(summary, standing.group.label, cells)
        until = summary.budget(task) / 1e6
        tables.append(f"<h3>{escape(task)}, {until:.3g} M frames</h3>{_table(headings, rows)}")
    about = (
        f"Final success: the last {100 * FINAL_SHARE:.0f} % of the frames that all compared "
        "seeds of the task have. Area: mean success over these frames. Frames to a success rate: "
        "mean over seeds; a seed that never gets there counts with all its frames, which makes the "
        "mean a lower bound (≥). "
    )
    if summary.baseline:
        about += (
            f"Ratio: frames of {baseline} over frames of the method; bold where its interval "
            "excludes 1, in brackets where both sides are only bounds. "
        )
    about += "Intervals are 95 %, bootstrapped over seeds."
    return _section("Numbers", about, "".join(tables))


def _share(estimate: Estimate) -> str:
    return (
        f"{100 * estimate.value:.1f} % "
        f"<small>[{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]</small>"
    )


def _frames_cell(standing: Standing, reached: np.ndarray) -> str:
    there = ~np.isinf(reached)
    total = f"{there.sum()} of {len(reached)}"
    if not there.any():
        return f"<td>never <small>{total}</small></td>"
    mean = np.where(there, reached, min(standing.group.ends)).mean() / 1e6
    sign = "" if there.all() else "≥ "
    note = "" if there.all() else f" <small>{total}</small>"
    return f"<td>{sign}{mean:.3g} M{note}</td>"


def _ratio_cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return NOTHING
    estimate = ratio.estimate
    sign = {"at least": "≥ ", "at most": "≤ "}.get(ratio.bound, "")
    text = (
        f"{sign}{estimate.value:.2f}{TIMES} "
        f"<small>[{estimate.low:.2f}, {estimate.high:.2f}]</small>"
    )
    if ratio.bound == "uncertain":
        return f"<td>({text})</td>"
    sure = (estimate.low > 1 and ratio.bound != "at most") or (
        estimate.high < 1 and ratio.bound != "at least"
    )
    return f'<td class="sure">{text}</td>' if sure else f"<td>{text}</td>"


def _across(summary: Summary, charts: list[dict[str, Any]]) -> str:
    content = ""
    if summary.comparisons:
        rows = "".join(
            _row(
                summary,
                comparison.label,
                [
                    f"<td>{len(comparison.tasks)}</td>",
                    f"<td>{_share(comparison.better_area)}</td>",
                    f"<td>{_share(comparison.better_final)}</td>",
                ],
            )
            for comparison in summary.comparisons
        )
        headings = [f"better than {escape(str(summary.baseline))}", "tasks", "by area", "by final"]
        content += f"<h3>Probability of improvement</h3>{_table(headings, rows)}"
    if summary.profiles:
        lines = [
            {
                "label": label,
                "x": {"threshold": _numbers_of(PROFILE_THRESHOLDS)},
                "bands": {"profile": [_numbers_of(line) for line in lines]},
                "seeds": [],
            }
            for label, lines in summary.profiles.items()
        ]
        title = "Performance profile: runs with a final success above τ"
        chart = {"title": title, "percent": True, "kind": "profile", "lines": lines}
        content += f'<h3>{escape(", ".join(summary.profile_tasks))}</h3><div class="charts">'
        content += f"{_box(charts, chart)}</div>"
    elif len(summary.labels) > 1:
        content += "<p>No performance profile: no task was measured with all methods.</p>"
    about = (
        "Probability of improvement: the chance that a seed of the method beats a seed of the "
        "baseline on the same task, averaged over the tasks both have. Intervals are 95 %, "
        "stratified by task."
    )
    return _section("Across tasks", about, content) if content else ""


def _ella(summary: Summary, charts: list[dict[str, Any]]) -> str:
    boxes = ""
    for task in summary.tasks:
        for name, title in ELLA_PANELS.items():
            groups = [group for group in summary.of_task(task) if name in group.measures]
            if any(not np.isnan(group.measures[name]).all() for group in groups):
                what = title.replace("\n", " ")
                boxes += _curve_box(charts, groups, name, f"{task}: {what}")
    about = (
        "What the method holds relevant: the size of an instruction's decomposition, and how the "
        "relevance classifier compares with the truth on instructions of the task."
    )
    charts_box = f'<div class="charts">{boxes}</div>'
    return _section("ELLA's decompositions", about, charts_box) if boxes else ""


def _artefacts(artefacts: Sequence[Artefacts]) -> str:
    content = ""
    for of_run in artefacts:
        figures = "".join(
            f'<figure><img src="{image.address}" alt="{escape(image.name)}">'
            f"<figcaption>{escape(image.name)}</figcaption></figure>"
            for image in of_run.images
        )
        content += f"<h3>{escape(_name(of_run.run))}</h3>"
        content += f'<div class="charts">{figures}</div>' if figures else ""
        content += "".join(map(_explanation, of_run.explanations))
    about = "Videos, images and explanations found in the directories of the runs."
    return _section("Videos and explanations", about, content) if content else ""


def _explanation(explanation: StoredExplanation) -> str:
    chosen = [
        row
        for row in explanation.judgements
        if row["probability"] > 0.5 or row.get("in_dataset") or row.get("oracle")
    ][:MAX_JUDGEMENTS]
    rows = "".join(
        f"<tr><td>{escape(row['text'])}</td><td>{row['probability']:.3f}</td>"
        f"<td>{'yes' if row.get('in_dataset') else '-'}</td>"
        f"<td>{'yes' if row.get('oracle') else '-'}</td></tr>"
        for row in chosen
    )
    headings = [
        f"{escape(explanation.instruction)} ({escape(explanation.name)})",
        "relevance",
        "in D",
        "oracle",
    ]
    return _table(headings, rows)


def _name(run: Run) -> str:
    return f"{run.task}, {run.method} ({run.path.name})"


def _runs(runs: Sequence[Run]) -> str:
    content = ""
    for run in runs:
        versions = run.circumstances.get("versions")
        told = {
            "python": run.circumstances.get("python"),
            **(versions if isinstance(versions, dict) else {}),
            "device": run.circumstances.get("device"),
            "devices": run.circumstances.get("devices"),
        }
        line = ", ".join(f"{name} {value}" for name, value in told.items() if value is not None)
        seeds = ", ".join(map(str, run.series))
        content += (
            f'<details class="run"><summary><b>{escape(_name(run))}</b>, seeds {escape(seeds)}'
            f"</summary><h3>Command</h3><pre>{escape(run.command or 'unknown')}</pre>"
            f"<h3>Circumstances</h3><p>{escape(line or 'unknown')}</p><h3>Configuration</h3>"
            f"<pre>{escape(json.dumps(run.config, indent=2))}</pre></details>"
        )
    return _section("Runs", "The exact command and configuration of every run.", content)
