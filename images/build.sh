#!/usr/bin/env bash
# `build.sh IMAGE TARGET DESTINATION ...`, in a mount namespace of its own (`unshare --mount`): builds targets of the Dockerfile
# in the working directory by buildah, without Docker and without a registry, and pushes each to a destination of containers'
# transports. An empty target is a base itself. local_kubernetes.images and `make release` call it, with these in the environment:
# STORAGE, an empty folder; BASES, words IMAGE=TAR or IMAGE=ARCHIVE; STAGES, TRUST and LABELS, options of buildah; ARCHITECTURE.
set -eu
# Storage is memory that only these commands see: thousands of small files, of which nothing is left afterwards.
mount -t tmpfs tmpfs "$STORAGE"
store() { buildah --root="$STORAGE/root" --runroot="$STORAGE/run" --storage-driver=overlay "$@"; }
base() {
    container=$(store from scratch)
    store add --quiet "$container" "$2" /
    store config --env PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin --cmd python3 "$container"
    store commit --rm --quiet --disable-compression "$container" "$1"
}
for each in $BASES; do
    case $each in
        *.tar) base "${each%%=*}" "${each#*=}" ;;
        *) store pull --quiet "docker-archive:${each#*=}" ;;
    esac
done
# What runs while the image is built is of this machine's architecture, so the image gets its own at the end.
for_architecture() {
    container=$(store from --pull-never "$1")
    store config --arch "$ARCHITECTURE" "$container"
    store commit --rm --quiet --disable-compression "$container" "$1"
}
image() {
    [ -z "$2" ] || store bud --pull-never $TRUST $STAGES $LABELS --build-arg=TARGETARCH="$ARCHITECTURE" --target="$2" --tag="$1" .
    [ "$ARCHITECTURE" = amd64 ] || for_architecture "$1"
    store push --quiet "$1" "$3"
}
jobs=()
while [ $# -gt 0 ]; do
    image "$1" "$2" "$3" &
    jobs+=($!)
    shift 3
done
for job in "${jobs[@]}"; do wait "$job"; done
