# shellcheck shell=bash
# machine.bash: a minimal Debian 12 in a temporary folder, entered with chroot. Scripts that test on one source this.
#
# It is made by debootstrap, from the mirrors that this machine itself is set up to use, and kept in build/debian for a
# day, so that the parts of a run of the tests share it. Needs root. Exit status 77: cannot run here, the last line says why.
#
# Sets $repo and $scratch, a temporary folder that is removed at the end with all that runs below it.
SUITE=bookworm
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$repo" || exit 1

skip() {
    printf '%s\n' "$*"
    exit 77
}
((EUID == 0)) || skip "needs root, for debootstrap and chroot"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"

# The lists of this machine: "URI RELEASE COMPONENT".
targets=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(CODENAME)' \
    'Created-By: Packages' | awk -v suite="$SUITE" 'index($4, suite) == 1 {print $1, $2, $3}' | sort -u)
mirror=$(awk -v suite="$SUITE" '$2 == suite {print $1; exit}' <<<"$targets")
[[ -n $mirror ]] || skip "this machine has no package source for Debian $SUITE"

scratch=$(mktemp -d)
mounts=()

# Processes whose root is below the temporary folder.
inhabitants() {
    local process
    for process in /proc/[0-9]*; do
        [[ $(readlink "$process/root" 2>/dev/null) != "$scratch"/* ]] || printf '%s\n' "${process##*/}"
    done
}
clean_up() {
    local pid mount
    for pid in $(inhabitants); do
        kill -KILL "$pid" 2>/dev/null || true
    done
    for mount in "${mounts[@]}"; do
        umount "$mount" || umount -l "$mount" || return # rather a leftover than rm -r in /proc
    done
    rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# base_system: makes build/debian/base.tar, unless it was made today from the same sources.
base_system() {
    local cache=$repo/build/debian root=$scratch/base started=$SECONDS
    mkdir -p "$cache"
    [[ -z $(find "$cache/base.tar" -mmin -1440 2>/dev/null) || $(<"$cache/sources") != "$targets" ]] || return 0
    debootstrap --variant=minbase "$SUITE" "$root" "$mirror" >"$scratch/debootstrap.log" 2>&1 || {
        tail -n 20 "$scratch/debootstrap.log"
        return 1
    }
    rm -rf "$root"/etc/apt/sources.list.d "$root"/var/cache/apt/*
    sed 's/^/deb /' <<<"$targets" >"$root/etc/apt/sources.list"
    apt-config dump | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/90host" || true
    if [[ $targets == *https:* ]]; then
        mkdir -p "$root/etc/ssl/certs"
        cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    fi
    tar -c -C "$root" . >"$cache/base.new"
    mv "$cache/base.new" "$cache/base.tar"
    printf '%s\n' "$targets" >"$cache/sources"
    rm -rf --one-file-system "$root"
    printf 'Debian made in %d s\n' $((SECONDS - started))
}

# make_machine FOLDER: a new one.
make_machine() {
    base_system
    mkdir "$1"
    tar -x -C "$1" <"$repo/build/debian/base.tar"
    cp -L /etc/hosts /etc/resolv.conf "$1/etc/"
    mount -t proc proc "$1/proc"
    mounts+=("$1/proc")
}

# in_machine FOLDER COMMAND [ARGUMENT]...
in_machine() {
    local machine=$1 variable keep=(PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8)
    shift
    for variable in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        [[ -z ${!variable-} ]] || keep+=("$variable=${!variable}")
    done
    chroot "$machine" /usr/bin/env -i DEBIAN_FRONTEND=noninteractive "${keep[@]}" "$@" </dev/null
}

# copy_sources FOLDER: the files that git knows or would add.
copy_sources() {
    mkdir -p "$1"
    git ls-files -coz --exclude-standard |
        while IFS= read -r -d '' file; do
            [[ ! -e $file ]] || printf '%s\0' "$file"
        done | tar -c --null -T - | tar -x --no-same-owner -C "$1"
}
