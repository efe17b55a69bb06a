"""The C load generator, linked to the librdkafka that the confluent-kafka wheel carries."""

import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bench.clients.job import BUILD, Counted, Job, PartMissing, build, parse_counted, run_command

SOURCE: Final = Path(__file__).parent / "native/librdkafka_load.c"
HEADER: Final = Path("/usr/include/librdkafka/rdkafka.h")


def _library() -> Path:
    package = find_spec("confluent_kafka")
    assert package is not None
    assert package.origin is not None
    folder = Path(package.origin).resolve().parents[1] / "confluent_kafka.libs"
    for library in folder.glob("librdkafka-*.so*"):
        return library
    raise PartMissing("the confluent-kafka package carries no librdkafka")


class LibrdkafkaClient:
    """Each run has its own process: librdkafka needs no warm-up."""

    name = "librdkafka"

    def __init__(self) -> None:
        if not HEADER.exists():
            raise PartMissing("librdkafka's header is missing (Debian's package librdkafka-dev)")
        library = _library()
        target = BUILD / "librdkafka_load"
        # The wheel's library brings its own dependencies, which the linker need not resolve.
        options = [str(library), f"-Wl,-rpath,{library.parent}", "-Wl,--allow-shlib-undefined"]
        self._program = build(target, [SOURCE], ["cc", "-O2", "-o", str(target), str(SOURCE), *options])

    def run(self, job: Job, bootstrap: str) -> Counted:
        """Run the job to its end."""
        return parse_counted(run_command([str(self._program), *job.words(bootstrap)]))

    def start(self, job: Job, bootstrap: str) -> subprocess.Popen[bytes]:
        """Start the job beside the caller, which ends it."""
        command = [str(self._program), *job.words(bootstrap)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        """Do nothing: no process stays between runs."""
