"""Record the pictures of the home page: `python docs/recordings.py path` and `python docs/recordings.py terminal`.

`path` plays the path of a word through the model in Chromium, on the page that `transduce inspect` writes with the
bundled model. It keeps the frames as docs/static/path-light.webp and path-dark.webp, and the whole
picture, which comes first, as a still one for readers who prefer reduced motion. It needs playwright and Pillow.

`terminal` runs the commands below in an empty folder and keeps what they print as docs/static/terminal.svg, in which
the lines appear one after another. The commands take about seven minutes.
"""

import shutil
import subprocess
import sys
import tempfile
from html import escape
from io import BytesIO
from pathlib import Path

STATIC = Path(__file__).with_name("static")
SENTENCE = "The animal didn't cross the street because it was too tired.\tstack=encoder&question=it>animal\n"
SECONDS, SHOWN_MS, LAST_MS, QUALITY = 30, 200, 3000, 55
"""Length of the path, milliseconds for which half a second of it and its end are shown, and the quality of frames."""
SCREENS = {"": (760, 4.8, 1, 0.5), "-phone": (340, 9.5, 2, 1.0)}
"""Width of the picture, height of its text in em, pixels per unit, and seconds of the path between two frames."""
MOVE = "(slider, time) => { slider.value = time; slider.dispatchEvent(new Event('input', { bubbles: true })) }"
QUIET = """.path-controls { display: none !important } .path { border: 0 !important; width: %dpx }
.path-text { height: %gem; overflow: hidden; margin-bottom: 0 !important }"""
RECIPE = """# A small model of the demo corpus, for one thread of a CPU.
[data]
train = [["data/demo/train.en", "data/demo/train.de"]]
valid = [["data/demo/valid.en", "data/demo/valid.de"]]
[tokenizer]
vocab_size = 2000
[model]
encoder_layers = 1
decoder_layers = 1
d_model = 64
d_ff = 128
num_heads = 2
dropout = 0.0
[train]
steps = 4000
batch_tokens = 512
warmup = 100
save_every = 200
log_every = 100
valid_sentences = 60
threads = 1
"""
COMMANDS = (
    'transduce translate --to de "Where is the station?"',
    "transduce data get demo",
    "transduce train first.toml --set train.minutes=6",
    'transduce translate -m runs/first "My old doctor sometimes washes the car."',
    "transduce compare runs/first",
)
WIDTH, LINE, COLUMNS, LINE_SECONDS = 760, 17, 96, 0.25


def record_path() -> None:
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        sentences, site = Path(folder) / "sentences.txt", Path(folder) / "site"
        sentences.write_text(SENTENCE, encoding="utf-8")
        inspect = [sys.executable, "-m", "transduce", "inspect", "--site", str(site), str(sentences), "--to", "de"]
        subprocess.run(inspect, check=True)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            for name, (width, lines, scale, step) in SCREENS.items():
                window = {"width": width + 140, "height": 1000}
                page = browser.new_page(viewport=window, color_scheme=scheme, device_scale_factor=scale)
                page.goto((site / "1.html").as_uri())
                page.add_style_tag(content=QUIET % (width, lines))
                card, slider = page.locator(".card.path"), page.locator(".path-controls input[type=range]")
                frames = []
                for number in range(round(SECONDS / step) + 1):
                    slider.evaluate(MOVE, number * step)
                    page.evaluate("() => new Promise(requestAnimationFrame)")
                    frames.append(Image.open(BytesIO(card.screenshot())).convert("RGB"))
                frames.insert(0, frames.pop())  # a reader sees the whole picture first
                durations = [LAST_MS] + [round(SHOWN_MS * step / 0.5)] * (len(frames) - 1)
                frames[0].save(
                    STATIC / f"path-{scheme}{name}.webp", save_all=True, append_images=frames[1:], duration=durations,
                    loop=0, quality=QUALITY, method=4, minimize_size=True, allow_mixed=True,
                )  # fmt: skip
                frames[0].save(STATIC / f"path-{scheme}{name}-still.webp", quality=QUALITY, method=6)
                page.close()
        browser.close()


def record_terminal() -> None:
    lines: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "first.toml").write_text(RECIPE, encoding="utf-8")
        for command in COMMANDS:
            lines += [("command", part) for part in _wrapped(f"$ {command}")]
            words = command.split('"')
            arguments = [*words[0].split()[1:], *words[1:2]]
            done = subprocess.run(
                [sys.executable, "-m", "transduce", *arguments], cwd=folder, capture_output=True, text=True, check=True
            )
            printed = (done.stdout + done.stderr).splitlines()
            lines += [("output", part) for line in _chosen(printed) for part in _wrapped(line)]
            lines.append(("output", ""))
    (STATIC / "terminal.svg").write_text(_drawn(lines[:-1]), encoding="utf-8")


def _chosen(lines: list[str]) -> list[str]:
    """The lines that are shown: of many, the first and the last ones; none with a path of this machine."""
    shown = [line.rstrip() for line in lines if line.strip() and ": /" not in line]
    return shown if len(shown) <= 16 else [*shown[:4], "…", *shown[-6:]]


def _wrapped(line: str) -> list[str]:
    """The line in parts that fit, the others indented."""
    parts = []
    while len(line) > COLUMNS:
        end = line.rfind(" ", 0, COLUMNS)
        end = end if end > 4 else COLUMNS
        parts.append(line[:end])
        line = "    " + line[end:].lstrip()
    return [*parts, line]


def _drawn(lines: list[tuple[str, str]]) -> str:
    """A window with the lines, which appear one after another; they are all there if motion is reduced."""
    height = 44 + LINE * len(lines)
    texts = "\n".join(
        f'<text class="{kind}" x="16" y="{50 + LINE * number}" style="animation-delay:{LINE_SECONDS * number:.2f}s" '
        f'xml:space="preserve">{escape(text)}</text>'
        for number, (kind, text) in enumerate(lines)
        if text
    )
    label = escape(f"A terminal: {'; '.join(COMMANDS)}", quote=True)
    lights = zip((20, 38, 56), ("#e0695f", "#e3b341", "#57ab5a"), strict=True)
    circles = "".join(f'<circle cx="{x}" cy="17" r="5" fill="{colour}"/>' for x, colour in lights)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">
<style>
text {{ font: 12.5px ui-monospace, "DejaVu Sans Mono", monospace; fill: #d7dce5; animation: appear .1s both; }}
.command {{ fill: #8fd3a8; }}
@keyframes appear {{ from {{ opacity: 0; }} }}
@media (prefers-reduced-motion: reduce) {{ text {{ animation: none; }} }}
</style>
<rect width="{WIDTH}" height="{height}" rx="10" fill="#171b24"/>
{circles}
{texts}
</svg>
"""


if __name__ == "__main__":
    STATIC.mkdir(exist_ok=True)
    {"path": record_path, "terminal": record_terminal}[sys.argv[1]]()
