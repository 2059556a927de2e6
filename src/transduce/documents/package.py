"""Zip packages of XML files, which DOCX and ODT files are: read within limits, and written with members replaced."""

import io
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from copy import copy

from transduce.documents.document import Document, Splicer
from transduce.documents.xml_source import XML_ENCODING
from transduce.errors import DataError
from transduce.files.files import decode_text

MAX_MEMBER_BYTES = 32 << 20
MAX_PACKAGE_BYTES = 512 << 20
_MAX_MEMBERS = 10_000


class Package:
    """The members of a zip file. One that would decompress to more than the limits is refused before it is read."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._name = data, name
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                self._infos = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError):
            raise DataError(f"{name}: damaged, or not a file of this format (it is not a zip archive)") from None
        if len(self._infos) > _MAX_MEMBERS or sum(info.file_size for info in self._infos) > MAX_PACKAGE_BYTES:
            raise DataError(
                f"{name}: more than {_MAX_MEMBERS:,} members or {MAX_PACKAGE_BYTES >> 20} MB when decompressed"
            )
        self.names = [info.filename for info in self._infos]

    def read(self, member: str) -> bytes:
        with zipfile.ZipFile(io.BytesIO(self._data)) as archive:
            return self._read(archive, archive.getinfo(member), MAX_MEMBER_BYTES)

    def replaced(self, members: Mapping[str, bytes]) -> bytes:
        """The package with other content of these members; all others are as they were, in the same order."""
        written = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self._data)) as archive, zipfile.ZipFile(written, "w") as output:
            output.comment = archive.comment
            for info in self._infos:
                content = members.get(info.filename)
                if content is None:
                    content = self._read(archive, info, MAX_PACKAGE_BYTES)
                output.writestr(copy(info), content, compress_type=info.compress_type)  # writestr changes it
        return written.getvalue()

    def _read(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> bytes:
        """Decompress a member, but never more than its directory entry says and the limit allows."""
        problem = f"{self._name}: its member {info.filename!a:.80}"
        if info.file_size > most:
            raise DataError(f"{problem} has {info.file_size:,} bytes, more than {most:,}")
        if info.flag_bits & 1:
            raise DataError(f"{problem} is encrypted; remove the password first")
        try:
            with archive.open(info) as file:
                content = file.read(info.file_size + 1)
        except (zipfile.BadZipFile, NotImplementedError, zlib.error, EOFError, OSError, ValueError):
            raise DataError(f"{problem} is damaged") from None
        if len(content) != info.file_size:
            raise DataError(f"{problem} is damaged: its size is not as recorded")
        return content


def read_members(
    package: Package, names: Iterable[str], document: str, splice: Callable[[str, str], Splicer]
) -> Document:
    """The document whose texts are in these members of a package; `splice(source, name)` finds those of one member."""
    members, encodings = {}, {}
    for member in names:
        source, encodings[member] = decode_text(package.read(member), f"{document}: {member}", XML_ENCODING)
        members[member] = splice(source, f"{document}: {member}")

    def pack(written: dict[str, str]) -> bytes:
        return package.replaced(
            {member: text.encode(encodings[member], "xmlcharrefreplace") for member, text in written.items()}
        )

    return Document(members, pack)
