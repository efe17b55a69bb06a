"""The files of pages that others wrote are those that the notice names, with their licences."""

import hashlib
import re
from pathlib import Path

import barnabas_console

STATIC = Path(barnabas_console.__file__).parent / "static"


def test_the_files_of_others_have_the_hashes_in_the_notice_and_their_licences() -> None:
    notice = (STATIC / "NOTICE").read_text()
    found = re.findall(r"^(\S+\.js) .*see (LICENSE-\S+)\n +sha256 ([0-9a-f]{64})$", notice, re.MULTILINE)
    assert {name for name, _, _ in found} == {each.name for each in STATIC.glob("*.min.js")}
    for name, licence, digest in found:
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest
        assert "Permission to use" in (STATIC / licence).read_text()
