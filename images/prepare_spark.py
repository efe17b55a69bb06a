"""Makes what is left of Spark while the image is built: Java's authorities and Spark's folder."""

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
KEYSTORE_MAKER: Final = "/usr/share/ca-certificates-java/ca-certificates-java.jar"
CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def trust_authorities() -> None:
    """Those of Debian for Java, too: it does not read their format."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, text in enumerate(CERTIFICATE.findall(AUTHORITIES.read_text(encoding="utf-8"))):
            files.append(Path(folder, f"{number}.crt"))
            files[-1].write_text(text, encoding="ascii")
        wanted = "".join(f"+{file}\n" for file in files)
        command = ["java", "-jar", KEYSTORE_MAKER, "-storepass", "changeit"]
        subprocess.run(command, input=wanted, text=True, check=True, stdout=subprocess.DEVNULL)


def make_spark_home(home: Path) -> None:
    """A folder with the jars of PySpark, beside a `spark-submit` that needs no shell."""
    import pyspark

    (home / "jars").symlink_to(Path(pyspark.__file__).parent / "jars")


if __name__ == "__main__":
    trust_authorities()
    make_spark_home(Path(os.environ["SPARK_HOME"]))
