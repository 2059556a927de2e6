"""Documents that are XML files in a zip file: DOCX and ODT."""

from collections.abc import Callable, Iterable

from transduce.documents.document import Document, Splicer
from transduce.documents.package import Package
from transduce.files.xml_source import decode_xml


def read_members(
    package: Package, names: Iterable[str], document: str, splice: Callable[[str, str], Splicer]
) -> Document:
    """The document whose texts are in these members of a package; `splice(source, name)` finds those of one member."""
    members, encodings = {}, {}
    for member in names:
        source, encodings[member] = decode_xml(package.read(member), f"{document}: {member}")
        members[member] = splice(source, f"{document}: {member}")

    def pack(written: dict[str, str]) -> bytes:
        return package.replaced(
            {member: text.encode(encodings[member], "xmlcharrefreplace") for member, text in written.items()}
        )

    return Document(members, pack)
