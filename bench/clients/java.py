"""The Java load generator: one process for all runs, so that its JIT is equally warm for each peer."""

import select
import subprocess
from pathlib import Path
from typing import Final

from bench.clients.job import BUILD, RUN_SECONDS_MAX, Counted, Job, NotRun, PartMissing, build, parse_counted
from harness.kafka_jars import JarsMissing, jars_folder, java_command

SOURCES: Final = tuple(Path(__file__).parent / "java" / name for name in ("Load.java", "Transactions.java"))
HEAP_OPTIONS: Final = ("-Xms512m", "-Xmx512m")


class JavaClient:
    """The process starts at the first run; it is killed if a run hangs, and the next run starts a new one."""

    name = "Java"

    def __init__(self) -> None:
        classes = BUILD / "classes"
        try:
            compiler = ["javac", "-d", str(classes), "-cp", f"{jars_folder()}/*", *map(str, SOURCES)]
            build(classes / "Load.class", SOURCES, compiler)
            self._command = java_command("Load", options=HEAP_OPTIONS, before=[classes])
        except JarsMissing as missing:
            raise PartMissing(str(missing)) from None
        self._process: subprocess.Popen[str] | None = None

    def run(self, job: Job, bootstrap: str) -> Counted:
        """Send the run to the process, and wait for its answer."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(" ".join(job.words(bootstrap)) + "\n")
        process.stdin.flush()
        # The process prints one line for each run and nothing else, so nothing is buffered when this waits.
        ready, _, _ = select.select([process.stdout], [], [], RUN_SECONDS_MAX)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.close()
            raise NotRun("the Java client ended" if ready else f"no end after {RUN_SECONDS_MAX:.0f} s")
        return parse_counted(line)

    def _start(self) -> subprocess.Popen[str]:
        BUILD.mkdir(parents=True, exist_ok=True)
        with (BUILD / "java-client.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        return self._process

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None
