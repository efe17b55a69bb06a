#!/usr/bin/env bash
# Everything that the client tests need and Python does not bring: kcat (Debian's librdkafka), Apache Kafka's jars, the
# drivers in Java, Go and JavaScript. What is there already is left alone; what cannot be had is an error here and, unless
# CI=true, a skip in the tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v kcat >/dev/null; then
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    # Another of these scripts may be at it.
    exec 9>/tmp/barnabas-apt.lock && flock 9
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq kcat
    exec 9>&-
fi
kcat -V | tail -2
PYTHONPATH=tests:tests/compat .venv/bin/python tests/compat/drivers/builds.py
