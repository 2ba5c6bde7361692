"""Tables in terminals and pipes."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

MOST_COLUMNS = 10_000
"""Of characters: wider than any table."""


def print_whole(*tables: Table) -> None:
    """Print the first of the tables that fits into the terminal, or the last one, without cutting
    or folding anything in it. A pipe has no width to fit into."""
    console = Console(highlight=False)
    room = console.width if console.is_terminal else MOST_COLUMNS
    *wider, narrowest = tables
    table = next((one for one in wider if _width(console, one) <= room), narrowest)
    console.width = _width(console, table)
    console.print(table)


def _width(console: Console, table: Table) -> int:
    return console.measure(table, options=console.options.update(max_width=MOST_COLUMNS)).maximum


def plain_table(names: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str]) -> Table:
    """A table without a frame; the columns named in `left` are aligned there."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
