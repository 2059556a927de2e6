"""A page that a notebook shows, or that is written to a file."""

import html
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class HtmlPage:
    """A self-contained HTML page. A notebook shows it if it is the value of a cell."""

    html: str = field(repr=False)

    def save(self, path: str | Path) -> None:
        """Write the page to a file, which a browser opens without a network."""
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        # A frame keeps the styles and scripts of the page apart from those of the notebook.
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width: 100%; height: 45em; border: 0"></iframe>'
