"""HTML tags in a text that is not HTML as a whole, such as a message of a program."""

import re
from collections import Counter

_TAG = re.compile(r"<(?P<closes>/?)(?P<name>[A-Za-z][\w-]*)(?:\s[^<>]*)?(?<!/)>")


def paired_tags(text: str) -> list[re.Match[str]]:
    """The tags that are pairs, in order; of others, such as "<name>", it is not known what they stand for."""
    waiting, paired = list[re.Match[str]](), list[re.Match[str]]()
    names: Counter[str] = Counter()
    for tag in _TAG.finditer(text):
        if not tag["closes"]:
            waiting.append(tag)
            names[tag["name"]] += 1
        elif names[tag["name"]]:
            while (opening := waiting.pop())["name"] != tag["name"]:
                names[opening["name"]] -= 1
            names[tag["name"]] -= 1
            paired += [opening, tag]
    return sorted(paired, key=re.Match.start)
