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

from ella.intervals import Interval
from ella.methods.method import Colour, Column, Panels
from ella.report.artefacts import Artefacts, StoredExplanation
from ella.report.figures import band, iqm_band_name
from ella.report.groups import FINAL_SHARE, Group
from ella.report.method_styles import method_label, panels_in_use
from ella.report.palette import colours
from ella.report.runs import Run
from ella.report.series import CLOCKS, SUCCESS
from ella.report.statistics import ENOUGH_SEEDS, THRESHOLDS, Ratio
from ella.report.summary import PROFILE_THRESHOLDS, AreaDifference, GroupResult, Summary
from ella.training.evaluation import BACKENDS, Backend, Mode

TIMES, MINUS = "\u00d7", "\u2212"
NOTHING = "<td>–</td>"  # noqa: RUF001
MAX_JUDGEMENTS = 12
SAMPLED: Mode = "sampled"
ALONE: dict[Backend, str] = {"ella": "alone on fresh levels", "minigrid": "alone in minigrid"}
LONGER = 1.02
"""Times the frames that are compared, from which a policy counts as one of longer training."""
SUCCESS_COLUMN = Column(SUCCESS, "success rate")
IN_DATASET = "completed in every success so far, by ELLA's online dataset D of decompositions"


def render(
    summary: Summary, *, title: str = "ELLA report", refresh: float | None = None, written: str = ""
) -> str:
    """The page as text. With `refresh` it reloads itself every so many seconds; `written` says when
    it was made."""
    charts: list[dict[str, Any]] = []
    body = [
        _head(summary, title, refresh, written),
        _notes(summary.warnings),
        _controls(summary),
        _learning(summary, charts),
        _numbers(summary),
        _across(summary, charts),
        *(
            _panels(summary, panels, charts)
            for panels in panels_in_use(run.method for run in summary.runs).values()
        ),
        _artefacts(summary.artefacts),
        _runs(summary.runs),
    ]
    data = {"labels": summary.labels, "axes": _axes(summary), "charts": charts, "refresh": refresh}
    script = asset("page.js")
    return Template(asset("page.html")).substitute(
        title=escape(title),
        style=asset("page.css") + _colour_rules(summary.labels),
        body="\n".join(body),
        data=_json(data),
        script=script,
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _axes(summary: Summary) -> list[str]:
    """What curves can be drawn over."""
    clocks = [name for name in CLOCKS if any(name in group.clocks for group in summary.groups)]
    return ["frames", *clocks]


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


def _notes(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    rows = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return (
        f'<details class="notes" open><summary>{_plural(len(warnings), "warning")} about the data'
        f"</summary><ul>{rows}</ul></details>"
    )


def _controls(summary: Summary) -> str:
    methods = "".join(
        f'<button class="method" data-method="{index}" aria-pressed="true" '
        f'style="--own:var(--c{index})">{escape(label)}</button>'
        for index, label in enumerate(summary.labels)
    )
    iqm_band = iqm_band_name(
        curves for group in summary.groups for curves in group.measures.values()
    )
    bands = {"mean": "mean ± std", "iqm": f"IQM, {iqm_band}", "seeds": "every seed"}
    return (
        '<noscript><div class="notes">The charts need JavaScript; the tables and the figures next '
        "to this page do not.</div></noscript>"
        f'<div class="bar"><div class="set">{methods}</div>'
        f"{_choices('over', 'x', {axis: axis for axis in _axes(summary)})}"
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
        _curve_box(charts, summary.of_task(task), SUCCESS_COLUMN, task) for task in summary.tasks
    )
    about = (
        "Of the episodes that end while training, how many succeed. A frame is one step of one "
        "environment of one seed; episodes are a seed's too. Both are means over seeds at the same "
        "frame. "
    )
    if "seconds" in _axes(summary):
        about += "Seconds are those of all seeds of a run side by side. "
    if any(run.shared_program for run in summary.runs):
        about += (
            "Runs trained as one program with others have no curve over seconds: they all end at "
            "the same second. "
        )
    return _section("Learning curves", about, f'<div class="charts">{boxes}</div>')


def _curve_box(
    charts: list[dict[str, Any]], groups: Sequence[Group], column: Column, task: str
) -> str:
    lines = []
    for group in groups:
        if column.name not in group.measures:
            continue
        curves = group.measures[column.name]
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
    title = f"{task}: {column.title}".replace("\n", " ")
    return _box(charts, {"title": title, "percent": column.is_share, "lines": lines})


def _box(charts: list[dict[str, Any]], chart: dict[str, Any]) -> str:
    charts.append(chart)
    return (
        f'<div class="chart" data-chart="{len(charts) - 1}"><h3>{escape(chart["title"])}</h3></div>'
    )


def _numbers_of(values: np.ndarray, digits: int = 4) -> list[float | None]:
    """Rounded; None for what is not finite."""
    return [None if not np.isfinite(v) else float(f"{v:.{digits}g}") for v in values.tolist()]


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
    worlds = [one for one in BACKENDS if any((one, SAMPLED) in r.alone for r in summary.results)]
    headings = ["method", "seeds", *(ALONE[world] for world in worlds)]
    headings += ["final success", "area under curve"]
    levels = [f"{100 * threshold:.0f} %" for threshold in THRESHOLDS]
    if summary.baseline:
        headings += [f"area {MINUS} {baseline}", "verdict"]
    headings += [f"frames to {level}" for level in levels]
    if summary.baseline:
        headings += [f"ratio at {level}" for level in levels]
    tables = []
    for task in summary.tasks:
        rows = ""
        for result in (one for one in summary.results if one.group.task == task):
            cells = [
                f"<td>{len(result.group.ends)}</td>",
                *(_alone_cell(result, world, summary.budget(task)) for world in worlds),
                f"<td>{_share(result.final)}</td>",
                f"<td>{_share(result.area)}</td>",
            ]
            if summary.baseline:
                cells += _difference_cells(result.difference)
            cells += [_frames_cell(result, reached) for reached in result.reached]
            if summary.baseline:
                cells += [_ratio_cell(ratio) for ratio in result.ratios]
            rows += _row(summary, result.group.label, cells)
        until = summary.budget(task) / 1e6
        tables.append(f"<h3>{escape(task)}, {until:.3g} M frames</h3>{_table(headings, rows)}")
    about = ""
    if worlds:
        about += (
            "Alone: every seed's final policy plays levels that training never draws, with sampled "
            "actions; in brackets with greedy ones, and the frames where it was trained for more. "
        )
    about += (
        f"Final success: that of training in the last {100 * FINAL_SHARE:.0f} % of the frames that "
        "all compared seeds of the task have. Area: mean success over these frames. All with 95 % "
        "Student-t intervals over seeds; seeds that do not vary have none. Frames to a success "
        "rate: mean over seeds; a seed that never gets there counts with all its frames, which "
        "makes the mean a lower bound (≥). "
    )
    if summary.baseline:
        about += (
            f"Area {MINUS} {baseline}: difference in percentage points, with Welch's 95 % "
            f"interval. {_verdicts(summary)} Ratio: frames of {baseline} "
            "over frames of the method, with a 95 % Welch-t interval of its logarithm; bold where "
            "the interval excludes 1, in brackets where both sides are only bounds."
        )
    return _section("Numbers", about, "".join(tables))


def _alone_cell(result: GroupResult, world: Backend, budget: float) -> str:
    """With the frames of training where they are more than the table's."""
    if (world, SAMPLED) not in result.alone:
        return NOTHING
    greedy, frames = result.alone[world, "greedy"].value, max(result.group.ends)
    later = f", after {frames / 1e6:.3g} M" if frames > LONGER * budget else ""
    note = f"<small>({100 * greedy:.1f} %{later})</small>"
    return f"<td>{_share(result.alone[world, SAMPLED])} {note}</td>"


def _verdicts(summary: Summary) -> str:
    return (
        f"Verdict: equivalent if the interval lies within ±{100 * summary.margin:g} points "
        "(--margin), otherwise better or worse if it excludes 0, otherwise undecided; seeds that "
        "do not vary leave it undecided."
    )


def _share(interval: Interval) -> str:
    ends = f"{100 * interval.low:.1f}, {100 * interval.high:.1f}"
    return f"{100 * interval.value:.1f} %{_brackets(interval, ends)}"


def _brackets(interval: Interval, ends: str) -> str:
    """The ends of an interval that has a width."""
    return f" <small>[{ends}]</small>" if interval.has_width else ""


def _difference_cells(difference: AreaDifference | None) -> list[str]:
    if difference is None:
        return [NOTHING, NOTHING]
    interval = difference.interval
    ends = f"{100 * interval.low:+.1f}, {100 * interval.high:+.1f}"
    text = f"{100 * interval.value:+.1f}{_brackets(interval, ends)}"
    kind = "" if difference.verdict == "undecided" else ' class="sure"'
    return [f"<td>{text}</td>", f"<td{kind}>{difference.verdict}</td>"]


def _frames_cell(result: GroupResult, reached: np.ndarray) -> str:
    there = ~np.isinf(reached)
    total = f"{there.sum()} of {len(reached)}"
    if not there.any():
        return f"<td>never <small>{total}</small></td>"
    mean = np.where(there, reached, min(result.group.ends)).mean() / 1e6
    sign = "" if there.all() else "≥ "
    note = "" if there.all() else f" <small>{total}</small>"
    return f"<td>{sign}{mean:.3g} M{note}</td>"


def _ratio_cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return NOTHING
    interval = ratio.interval
    sign = {"at least": "≥ ", "at most": "≤ "}.get(ratio.bound, "")
    high = f"{interval.high:.2f}" if np.isfinite(interval.high) else "∞"
    ends = _brackets(interval, f"{interval.low:.2f}, {high}")
    text = f"{sign}{interval.value:.2f}{TIMES}{ends}"
    if ratio.bound == "uncertain":
        return f"<td>({text})</td>"
    sure = interval.has_width and (
        (interval.low > 1 and ratio.bound != "at most")
        or (interval.high < 1 and ratio.bound != "at least")
    )
    return f'<td class="sure">{text}</td>' if sure else f"<td>{text}</td>"


def _across(summary: Summary, charts: list[dict[str, Any]]) -> str:
    content = ""
    if summary.comparisons:
        baseline = escape(str(summary.baseline))
        rows = "".join(
            _row(
                summary,
                comparison.label,
                [
                    f"<td>{len(comparison.tasks)}</td>",
                    f"<td>{_share(comparison.better_area)}</td>",
                    f"<td>{_share(comparison.better_final)}</td>",
                    *_difference_cells(comparison.difference),
                ],
            )
            for comparison in summary.comparisons
        )
        headings = [
            *("method", "tasks", "probability of improvement: by area", "by final success"),
            *(f"area {MINUS} {baseline}", "verdict"),
        ]
        content += f"<h3>Against {baseline}</h3>{_table(headings, rows)}"
    if summary.profiles:
        content += f"<h3>{escape(', '.join(summary.profile_tasks))}</h3>"
        content += _aggregates(summary) + _profile(summary, charts)
    elif len(summary.labels) > 1:
        content += "<p>No performance profile: no task was measured with all methods.</p>"
    about = (
        "Probability of improvement: that a seed of the method beats a seed of the baseline on the "
        "same task, averaged over the tasks both have, with Newcombe's 95 % interval. Area: mean "
        f"of the tasks' differences, with Welch's 95 % interval. "
        f"{_verdicts(summary)} Interquartile means have expanded bootstrap intervals stratified by "
        f"task, which can cover less than 95 % with fewer than {ENOUGH_SEEDS} seeds a task; shares "
        "of runs have exact ones."
    )
    return _section("Across tasks", about, content) if content else ""


def _aggregates(summary: Summary) -> str:
    rows = "".join(
        _row(
            summary,
            label,
            [
                f"<td>{_share(summary.interquartile_mean(label, kind))}</td>"
                for kind in ("final", "area")
            ],
        )
        for label in summary.profiles
    )
    return _table(["interquartile mean over seeds and tasks", "final success", "area"], rows)


def _profile(summary: Summary, charts: list[dict[str, Any]]) -> str:
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
    return f'<div class="charts">{_box(charts, chart)}</div>'


def _panels(summary: Summary, panels: Panels, charts: list[dict[str, Any]]) -> str:
    boxes = ""
    for task in summary.tasks:
        for column in panels.columns:
            groups = [group for group in summary.of_task(task) if column.name in group.measures]
            if any(not np.isnan(group.measures[column.name]).all() for group in groups):
                boxes += _curve_box(charts, groups, column, task)
    charts_box = f'<div class="charts">{boxes}</div>'
    return _section(panels.title, panels.about, charts_box) if boxes else ""


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
    if any(of_run.explanations for of_run in artefacts):
        about += (
            " Relevance: the classifier's probability that a low-level instruction is relevant. "
            f"In D: {IN_DATASET}. Oracle: it truly supports the instruction."
        )
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
        f'<span title="{IN_DATASET}">in D</span>',
        "oracle",
    ]
    return _table(headings, rows)


def _name(run: Run) -> str:
    return f"{run.task}, {method_label(run.method)} ({run.path.name})"


def _runs(runs: Sequence[Run]) -> str:
    content = ""
    for run in runs:
        versions = run.provenance.get("versions")
        told = {
            "python": run.provenance.get("python"),
            **(versions if isinstance(versions, dict) else {}),
            "device": run.provenance.get("device"),
            "devices": run.provenance.get("devices"),
        }
        line = ", ".join(f"{name} {value}" for name, value in told.items() if value is not None)
        seeds = ", ".join(map(str, run.series))
        content += (
            f'<details class="run"><summary><b>{escape(_name(run))}</b>, seeds {escape(seeds)}'
            f"</summary><h3>Command</h3><pre>{escape(run.command or 'unknown')}</pre>"
            f"<h3>Provenance</h3><p>{escape(line or 'unknown')}</p><h3>Configuration</h3>"
            f"<pre>{escape(json.dumps(run.config, indent=2))}</pre></details>"
        )
    return _section("Runs", "The exact command and configuration of every run.", content)
