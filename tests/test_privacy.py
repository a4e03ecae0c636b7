"""Which paths the globs keep out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan_engine.errors import InputError
from midspan_server.privacy import DEFAULT_GLOBS, check_glob, first_match, names_of, path_of


@pytest.mark.parametrize(
    "path",
    [
        "/home/me/app/.env",
        "/home/me/app/.env.local",
        "/home/me/app/.ENV",
        "/srv/tls/server.PEM",
        "/home/me/.ssh/config",
        "/home/me/.ssh/keys/work.py",
        "/repo/.git/hooks/pre_commit.py",
        "/home/me/id_rsa.pub",
        "C:\\app\\.env",
        "/app/config/secrets.yml",
        "/app/.env/settings.py",
    ],
)
def test_files_that_hold_secrets_are_kept_out_by_default(path: str) -> None:
    assert first_match(path, DEFAULT_GLOBS)


@pytest.mark.parametrize(
    "path", ["/app/environment.py", "/app/keys.py", "/app/git/x.py", "/app/x.key.py", "/app/.gitignore", "/app/.git"]
)
def test_ordinary_files_are_not_kept_out(path: str) -> None:
    assert first_match(path, DEFAULT_GLOBS) is None


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("private/*.py", "/a/private/b.py", True),
        ("private/*.py", "/a/private/c/b.py", False),
        ("private/**/b.py", "/a/private/c/d/b.py", True),
        ("private/**/b.py", "/a/private/b.py", True),
        ("private/", "/private/x", True),
        ("private/", "/private", False),
        ("[!a]?.py", "/bc.py", True),
        ("[!a]?.py", "/ac.py", False),
        ("*", "/anything", True),
        ("a.b", "/axb", False),
        ("ÄRGER*", "/ärger.py", True),
    ],
)
def test_globs_match_components(glob: str, path: str, matches: bool) -> None:
    check_glob(glob)
    assert (first_match(path, [glob]) == glob) is matches


@pytest.mark.parametrize("glob", ["", "  ", "/", "secret[", "a[b", "x\0", "[z-a]"])
def test_a_glob_that_keeps_nothing_out_is_refused(glob: str) -> None:
    with pytest.raises(InputError):
        check_glob(glob)


@given(st.text(max_size=12))
def test_a_glob_is_refused_or_usable(glob: str) -> None:
    try:
        check_glob(glob)
    except InputError:
        return
    first_match("/a/b/c.py", [glob])


@given(st.text(alphabet="abX._- é", min_size=1, max_size=8).filter(str.strip))
def test_a_plain_name_matches_itself_in_any_case(name: str) -> None:
    name = name.strip()
    assert first_match(f"/x/{name.upper()}/y", [name]) == name


def test_the_path_of_a_uri_is_decoded() -> None:
    assert path_of("file:///home/me/%2Eenv") == "/home/me/.env"
    assert path_of("untitled:Untitled-1") == "Untitled-1"
    assert path_of("file://[a/%2Eenv") == "file://[a/.env"
    assert path_of("vscode-notebook-cell:/a/b.ipynb#W0") == "/a/b.ipynb"


def test_a_file_goes_by_its_own_name_and_by_that_of_the_file_it_links_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.py").symlink_to(".env")
    assert names_of("notes.py") == (str(tmp_path / "notes.py"), str(tmp_path.resolve() / ".env"))
    assert names_of("a\0b") == ("a\0b",)
