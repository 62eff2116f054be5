#!/bin/sh
# Make .venv hold what the lock file says: `setup.sh base` (run the chip) or `setup.sh test` (that and the tests).
# The Makefile calls it; a stamp in .venv makes a second call return at once.
set -eu
cd "$(dirname "$0")/../.."

kind=${1:?usage: setup.sh base|test}
case $kind in
base) lock=requirements.lock ;;
test) lock=requirements-test.lock ;;
*) echo "setup: unknown kind '$kind', must be base or test" >&2; exit 2 ;;
esac

here=$(pwd)
key=$(cat "$lock" pyproject.toml verif/tools/setup.sh | sha256sum | cut -c1-16)
stamp=.venv/.stamp-$kind-$key
[ "$(cat .venv/.where 2>/dev/null)" = "$here" ] && [ -e "$stamp" ] && exit 0

fail() {
    echo "setup: $*" >&2
    exit 1
}

# Two `make`s at one time must not install into one folder.
if [ -z "${SLUICE_SETUP_LOCKED:-}" ] && command -v flock >/dev/null; then
    SLUICE_SETUP_LOCKED=1 exec flock sim_build/.gitignore sh verif/tools/setup.sh "$kind"
fi

case $here in
*[[:space:]]*) fail "the path '$here' has spaces, and make cannot build there; move the project" ;;
esac
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
    fail "the locked packages are for Linux on x86_64, and this is $(uname -s) on $(uname -m)"

missing=
command -v "${CXX:-c++}" >/dev/null || missing="$missing g++"
command -v perl >/dev/null || missing="$missing perl"
[ -z "$missing" ] || fail "no C++ compiler or perl here; install with: apt-get install$missing"

python=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is not a Python 3.11, 3.12 or 3.13 that runs"
[ -n "$python" ] || fail "no Python 3.11, 3.12 or 3.13 on PATH (python3 is $(python3 -V 2>&1 || true));" \
    "install with: apt-get install python3, or name one with PYTHON=/path/to/python3"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

# A folder that was moved here, or whose Python is gone or another, cannot be repaired.
if [ -e .venv ] && ! { [ "$(cat .venv/.where 2>/dev/null)" = "$here" ] &&
    [ "$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$version" ]; }; then
    echo "setup: .venv was made elsewhere or by another Python: making it anew"
    rm -rf .venv
fi
if [ ! -e .venv/bin/pip ]; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python cannot make virtual environments; install with: apt-get install python3-venv"
    echo "setup 1/3: making .venv with Python $version"
    "$python" -m venv .venv
    echo "$here" >.venv/.where
fi

rm -f .venv/.stamp-"$kind"-*
echo "setup 2/3: installing $(grep -c == "$lock") packages from $lock (a few minutes the first time)"
# The user's own pip settings may ask for --user, which a virtual environment refuses.
PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip install \
    --no-deps --only-binary :all: --require-hashes --requirement "$lock" ||
    fail "pip could not install $lock, see above"
echo "setup 3/3: installing sluice itself, in place"
PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip install \
    --quiet --no-deps --no-build-isolation --no-index --editable . ||
    fail "pip could not install the project, see above"
touch "$stamp"
