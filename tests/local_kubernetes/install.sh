#!/usr/bin/env bash
# Everything that a real Kubernetes on this machine needs: Debian's packages by name, and the programs of Kubernetes
# built from Go modules. What is there already is left alone. Without root or apt-get only the build is made, which is
# enough for the tests that need an API server and no pods. `install.sh images` builds the images too.
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=(buildah conntrack containerd containernetworking-plugins iproute2 iptables mmdebstrap openssl runc skopeo util-linux)
missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    if command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }; then
        sudo=$([ "$(id -u)" = 0 ] || echo sudo)
        # Another of these scripts may be at it.
        exec 9>/tmp/barnabas-apt.lock && flock 9
        $sudo apt-get update -qq
        $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
        exec 9>&-
    else
        echo "not installed, for want of apt-get or root: ${missing[*]}" >&2
    fi
fi
PYTHONPATH=tests .venv/bin/python -m local_kubernetes.binaries
PYTHONPATH=tests .venv/bin/python -m local_kubernetes.helm
PYTHONPATH=tests .venv/bin/python -m monitoring.prometheus_programs
if [ "${1:-}" = images ] && [ "$(id -u)" = 0 ]; then
    PYTHONPATH=tests .venv/bin/python -m local_kubernetes.images
fi
