"""The style of the report's page."""

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --card: #f7f8fa; --ink: #1b1f27; --faint: #646b78; --line: #dfe3e9;
  --accent: #2457c5; --note: #fff6df; --note-line: #e3b341;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14161b; --card: #1c1f26; --ink: #e8eaee; --faint: #9aa2b1; --line: #30353f;
    --accent: #86aaff; --note: #2b2616; --note-line: #a8842c;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1280px; padding: 0 20px 60px; background: var(--ground);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
h1 { font-size: 26px; margin: 28px 0 2px; letter-spacing: -0.01em; }
h2 { font-size: 19px; margin: 40px 0 4px; }
h3 { font-size: 15px; margin: 22px 0 6px; }
p.lead, p.about { color: var(--faint); margin: 0 0 14px; max-width: 80ch; }
.notes {
  background: var(--note); border-left: 4px solid var(--note-line); border-radius: 6px;
  padding: 8px 16px; margin: 16px 0;
}
.notes summary { font-weight: 600; cursor: pointer; }
.notes ul { margin: 6px 0 4px; padding-left: 20px; }
.notes li { overflow-wrap: anywhere; }
.bar {
  position: sticky; top: 0; z-index: 5; background: var(--ground); padding: 10px 0;
  border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: 8px 22px;
  align-items: center;
}
.bar .set { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; }
.bar .name { color: var(--faint); font-size: 13px; }
button {
  font: inherit; font-size: 13px; color: var(--ink); background: var(--card); cursor: pointer;
  border: 1px solid var(--line); border-radius: 999px; padding: 3px 12px;
}
button:hover { border-color: var(--faint); }
button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
button.method::before {
  content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 50%;
  margin-right: 7px; background: var(--own); border: 2px solid var(--own);
}
button.method[aria-pressed="false"] { color: var(--faint); text-decoration: line-through; }
button.method[aria-pressed="false"]::before { background: transparent; }
button.choice[aria-pressed="true"] {
  background: var(--accent); border-color: var(--accent); color: var(--ground);
}
.charts {
  display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 390px), 1fr));
}
.charts:has(> :only-child) { max-width: 640px; }
.chart {
  position: relative; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 12px 6px; min-width: 0;
}
.chart h3 { margin: 0 0 2px; }
.chart svg { display: block; width: 100%; height: 250px; touch-action: pan-y; }
.chart text { fill: var(--faint); font-size: 11.5px; }
.chart .end { font-weight: 600; }
.chart .grid { stroke: var(--line); }
.chart .axis { stroke: var(--faint); }
.chart .cross { stroke: var(--faint); stroke-dasharray: 3 3; }
.chart .middle { fill: none; stroke-width: 2; stroke-linejoin: round; }
.chart .seed { fill: none; stroke-width: 1; opacity: 0.65; }
.chart .area { opacity: 0.18; stroke: none; }
.tip {
  position: absolute; pointer-events: none; background: var(--ground); padding: 6px 10px;
  border: 1px solid var(--line); border-radius: 8px; font-size: 12.5px; z-index: 3;
  box-shadow: 0 4px 14px rgb(0 0 0 / 18%); white-space: nowrap; font-variant-numeric: tabular-nums;
}
.tip .dot, td .dot {
  display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 6px;
}
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 0 5px 13px; text-align: right; white-space: nowrap; }
th { color: var(--faint); font-weight: 500; border-bottom: 1px solid var(--line); }
td { border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td small { color: var(--faint); }
td.sure { font-weight: 650; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px; }
figure img { max-width: 100%; height: auto; display: block; border-radius: 4px; margin: 0 auto; }
figcaption { color: var(--faint); font-size: 13px; margin-top: 6px; overflow-wrap: anywhere; }
details.run { border: 1px solid var(--line); border-radius: 8px; padding: 6px 14px; margin: 8px 0; }
details.run > summary { cursor: pointer; overflow-wrap: anywhere; }
pre {
  background: var(--card); border-radius: 6px; padding: 8px 12px; overflow: auto; max-height: 420px;
  font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap;
  overflow-wrap: anywhere;
}
footer { color: var(--faint); font-size: 13px; margin-top: 40px; }
[hidden] { display: none !important; }
@media print { .bar { position: static; } }
"""
