#!/bin/sh
# The files below all images: Debian's Python, the libraries that it needs, a user, and nothing else. There is no shell.
# `root.sh DIRECTORY ARCHITECTURE [java]`, as root, with mmdebstrap and Python 3.11. The Dockerfile calls it, and so do the
# tests on pods. The architecture is one of Debian's names; nothing of it runs here. `java` adds Debian's Java and what Spark
# calls besides it: `chmod`, by which Hadoop sets the rights of files.
set -eu
root=$1
architecture=$2
include=base-files,python3.11-minimal,libpython3.11-stdlib,libstdc++6,tzdata
if [ "${3:-}" = java ]; then
    include=$include,ca-certificates-java,coreutils,openjdk-17-jre-headless
    set -- --dpkgopt='path-include=/etc/java-17-openjdk/*' \
        --dpkgopt='path-include=/usr/share/ca-certificates*' \
        --dpkgopt='path-include=/bin/chmod'
else
    set --
fi

# What scanners read to tell which packages an image has, as in distroless images.
describe='mkdir "$1/var/lib/dpkg/status.d"
for package in "$1"/var/cache/apt/archives/*.deb; do
    dpkg-deb --field "$package" > "$1/var/lib/dpkg/status.d/$(dpkg-deb --field "$package" Package)"
done'
# Extracted, not installed: no package runs its scripts, and dpkg itself is not needed. Programs, manuals, locales and the
# tables of iconv are left out; Python has its own.
mmdebstrap --quiet --mode=root --variant=extract --architectures="$architecture" --include="$include" \
    --dpkgopt='path-exclude=/usr/share/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-include=/usr/share/common-licenses/*' \
    --dpkgopt='path-include=/usr/share/zoneinfo/*' \
    --dpkgopt='path-exclude=/usr/share/zoneinfo/right/*' \
    --dpkgopt='path-exclude=/etc/*' \
    --dpkgopt='path-include=/etc/mime.types' \
    --dpkgopt='path-include=/etc/os-release' \
    --dpkgopt='path-include=/etc/python3.11/*' \
    --dpkgopt='path-exclude=/lib/systemd/*' \
    --dpkgopt='path-exclude=/usr/lib/*/gconv/*' \
    --dpkgopt='path-exclude=/usr/lib/*/libdb-5.3.so' \
    --dpkgopt='path-exclude=/usr/lib/python3.11/dbm/*' \
    --dpkgopt='path-exclude=/usr/lib/python3.11/lib-dynload/_dbm.*' \
    --dpkgopt='path-exclude=/usr/lib/python3.11/pydoc_data/*' \
    --dpkgopt='path-exclude=/usr/lib/python3.11/test/*' \
    --dpkgopt='path-exclude=/bin/*' \
    --dpkgopt='path-exclude=/sbin/*' \
    --dpkgopt='path-exclude=/usr/sbin/*' \
    --dpkgopt='path-exclude=/usr/libexec/*' \
    --dpkgopt='path-exclude=/usr/bin/*' \
    --dpkgopt='path-include=/usr/bin/python3.11' "$@" \
    --extract-hook="$describe" bookworm "$root"

# What mmdebstrap has made for itself.
cd "$root"
rm -rf dev/* etc/apt etc/dpkg etc/fstab etc/hostname etc/resolv.conf usr/lib/dpkg var/cache var/log var/lib/apt
find var/lib/dpkg -mindepth 1 -maxdepth 1 ! -name status.d -exec rm -rf {} +
# Others depend on these, and none of their programs is here.
for package in debconf dpkg mawk tar; do rm "var/lib/dpkg/status.d/$package"; done
find . -type d -empty ! -path ./tmp ! -path ./dev -delete

for name in python3 python; do ln -s python3.11 "usr/bin/$name"; done
mkdir -p proc sys run var/lib/barnabas
chown 10001:10001 var/lib/barnabas
cat > etc/passwd <<'END'
root:x:0:0:root:/root:/usr/sbin/nologin
barnabas:x:10001:10001:Barnabas:/var/lib/barnabas:/usr/sbin/nologin
END
cat > etc/group <<'END'
root:x:0:
barnabas:x:10001:
END
echo 'hosts: files dns' > etc/nsswitch.conf
# What the scripts of ca-certificates and of Java's package would make, which did not run.
if [ -d usr/share/ca-certificates ]; then
    mkdir -p etc/ssl/certs/java
    cat usr/share/ca-certificates/mozilla/*.crt > etc/ssl/certs/ca-certificates.crt
    for java in usr/lib/jvm/java-17-*/bin/java; do ln -s "/$java" usr/bin/java; done
fi

# Bytecode takes the place of Python's own sources: the root file system of a pod is read-only, and sources are 10 MB.
/usr/bin/python3.11 -m compileall -q -b --invalidation-mode unchecked-hash -s "$root" "$root/usr/lib/python3.11"
find usr/lib/python3.11 -name '*.py' -delete
