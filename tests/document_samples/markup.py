"""HTML and Markdown files."""

from document_samples.registry import sample


@sample
def plain_html() -> str:
    return "<!DOCTYPE html>\n<html><head><title>The title</title></head><body>\n <p>Some text.</p>\n</body></html>\n"


@sample
def inline_html() -> str:
    return '<p>with <b>bold</b>, <a href="x">a link</a>, <code>code()</code> &amp; more<br>next line</p>'


@sample
def scripts_html() -> str:
    return "<style>p { color: red }</style><script>var a = '<p>no</p>';</script><p>only this</p><!-- and not this -->"


@sample
def lists_html() -> str:
    return "<ul>\n  <li>one item</li>\n  <li><p>another</p>\n  <p translate='no'>Brand</p></li>\n</ul><pre>kept as is</pre>"


@sample
def attributes_html() -> str:
    return """<meta name="description" content="About &quot;us&quot;"><meta name="viewport" content="width=device-width">
<body title='The whole page'><p title="a hint">See <img src="a.png" alt="a small cat"> and <b title="strong">this</b>.</p>
<img alt="" src=b.png><img translate="no" alt="Brand" src="c.png"><code title="kept">x()</code>
<input placeholder="Your name" value="kept"><input type=submit value=Send><select><optgroup label="Some fruit"></select>
<a href="x" aria-label="open the menu" class="title">=</a><!-- <img alt="kept"> --><link rel="next" title="kept"></body>"""


@sample
def broken_html() -> str:
    return '<p>unclosed <b>bold <i>both</p> text < 5 & <weird attr="a>b">inside'


@sample
def latin1_html() -> bytes:
    return '<meta charset="iso-8859-1"><p>caf\u00e9 au lait</p>'.encode("latin-1")


@sample
def readme_md() -> str:
    return (
        "---\ntitle: kept\n---\n\n# A title\n\nSome *emphasis*, **strong words** and `code`.\n\n"
        "* an item\n* [x] a task\n\n1. first\n2. second\n\n```sh\nnot this\n```\n"
    )


@sample
def links_md() -> str:
    return 'See [the page](http://example.org "t") and [named][ref] or <http://auto.org>, ![image](a.png) too.\n\n[ref]: http://r.org\n'


@sample
def table_md() -> str:
    return "| head | other |\n|:-----|------:|\n| a cell | 12 |\n| `code` | x \\| y |\n"


@sample
def quotation_md() -> str:
    return "> quoted text\n> in two lines\n\n- item text\n  goes on\n\n      code\n"


@sample
def breaks_md() -> str:
    return "first line  \nsecond line\\\nthird line\n\nHeading\n-------\n\n***\n"


@sample
def escapes_md() -> str:
    return "a \\*star\\* &amp; snake_case &copy; ~~gone~~ text[^1]\n\n[^1]: the footnote\n"


@sample
def markup_md() -> str:
    return '<p align="center">\n  <b>bold</b> text\n</p>\n\nwith <sub>small</sub> parts<br>\n\r\n'


@sample
def crlf_md() -> str:
    return "# Windows\r\n\r\nlines of text\r\nend here\r\n"
