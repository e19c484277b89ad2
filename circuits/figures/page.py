"""Writing: figures to one HTML file that needs no network and no server."""

import html
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font-family: {font}; color: {ink}; background: {paper}; margin: 2rem auto;
max-width: 1400px; padding: 0 1rem; }}
section {{ margin: 2rem 0; overflow-x: auto; }}
pre {{ white-space: pre-wrap; }}
</style>
<script>{plotly}</script>
</head>
<body>
<h1>{title}</h1>
{notes}
{sections}
</body>
</html>
"""


def page_html(
    figures: Mapping[str, go.Figure] | Sequence[go.Figure],
    title: str,
    *,
    notes: str = "",
    above: str = "",
    theme: Theme = LIGHT,
) -> str:
    """Builds one self-contained page: plotly's script once, then the figures in order.

    Args:
        figures: figures under their headings, or figures alone.
        title: title of the page, shown as its heading.
        notes: plain text between the heading and the figures, with its line breaks.
        above: HTML that stands above the figures, as from `circuit_view`.
        theme: colours and fonts of the page around the figures.

    Returns:
        The text of an HTML file, about 5 MB of which are plotly's script.
    """
    headed = figures.items() if isinstance(figures, Mapping) else (("", fig) for fig in figures)
    sections = [_section(heading, figure) for heading, figure in headed]
    return _PAGE.format(
        title=html.escape(title),
        font=theme.font,
        ink=theme.ink,
        paper=theme.paper,
        plotly=get_plotlyjs(),
        notes=f"<pre>{html.escape(notes)}</pre>" if notes else "",
        sections="\n".join([above, *sections]),
    )


def write_html(
    figures: Mapping[str, go.Figure] | Sequence[go.Figure],
    path: str | os.PathLike[str],
    title: str,
    *,
    notes: str = "",
    above: str = "",
    theme: Theme = LIGHT,
) -> Path:
    """Writes figures to an HTML file that opens offline.

    The file appears complete or not at all: it is written under a temporary name in the same
    folder and renamed. Missing folders are made.

    Args:
        figures: figures under their headings, or figures alone.
        path: file to write; an existing one is replaced.
        title: title of the page.
        notes: plain text shown above the figures.
        above: HTML that stands above the figures, as from `circuit_view`.
        theme: colours and fonts of the page around the figures.

    Returns:
        The path written.

    Raises:
        InputError: if the folder cannot be made or written to, or `path` is a folder.
    """
    target = Path(path)
    text = page_html(figures, title, notes=notes, above=above, theme=theme)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, text)
    except OSError as error:
        raise InputError(
            f"cannot write {target}: {error.strerror or error}; "
            "give a file in a folder that you may write to"
        ) from error
    return target


def _section(heading: str, figure: go.Figure) -> str:
    body = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        config={"displaylogo": False, "responsive": True, "showSendToCloud": False},
    )
    head = f"<h2>{html.escape(heading)}</h2>\n" if heading else ""
    return f"<section>\n{head}{body}\n</section>"


def _replace(target: Path, text: str) -> None:
    """Writes next to the target and renames; nothing is left behind if that fails."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".tmp-", suffix=f"-{target.name}")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
