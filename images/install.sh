#!/bin/sh
# `install.sh NAME ARCHITECTURE`: what requirements/NAME.txt locks, as wheels for an architecture that this machine need not
# be of, without what only debuggers read. The Dockerfile calls it.
set -eu
case $2 in
    amd64) machine=x86_64 ;;
    arm64) machine=aarch64 ;;
    *) echo "install.sh: the architecture $2 is neither amd64 nor arm64" >&2; exit 2 ;;
esac
# Wheels name the oldest glibc that they run on; Debian 12 has 2.36.
set -- "$1" --platform="manylinux2014_$machine"
for minor in $(seq 17 36); do set -- "$@" --platform="manylinux_2_${minor}_$machine"; done
name=$1
shift
python3 -m pip install --quiet --no-cache-dir --no-deps --require-hashes --only-binary :all: \
    --python-version 3.11 --implementation cp "$@" --target "$SITE" --requirement "/requirements/$name.txt"
rm -rf "$SITE/bin"
find "$SITE" -name '*.so' -exec strip --strip-unneeded {} +
