"""Does a pull request make the server slower? Builds base and head, compares them with `wsbench duel`, and writes a comment.

    python scripts/duel_pull_request.py --build 'make server' --start './build/server --fast' \\
        --fail-if 'messages_per_s < -3 %' --comment comment.md

Run it in a clone of the server's repository. BASE is checked out and built next to HEAD, each in a worktree of its own, so the
clone itself stays as it is. The start command runs in the worktree with HOST, PORT and THREADS in its environment. Options after
`--` go to `wsbench duel`.

Exit codes: those of `wsbench duel`: 0 no decided regression (undecided is not failed), 2 bad input or a build that fails, 3 a
decided regression, 4 no usable number, such as on a machine whose other programs disturb every turn: the action takes that for
neutral. It needs git and wsbench with its report packages, and no service.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BAD_INPUT, NOTHING_USABLE = 2, 4
#: The first line of the comment, by which it is found again and updated.
MARK = "<!-- wsbench duel -->"


class Wrong(Exception):
    """One plain line for the user."""


def main(words: list[str]) -> int:
    own, duel_options = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    asked = _parser().parse_args(own)
    try:
        with tempfile.TemporaryDirectory(prefix="wsbench-pull-request-") as made:
            return _carried_out(asked, duel_options, Path(made))
    except Wrong as wrong:
        print(f"duel_pull_request: {wrong}", file=sys.stderr)
        return BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    made.add_argument("--start", required=True, help="the command that starts the server, in the worktree; no shell")
    made.add_argument("--build", default="", help="the command that builds it, in the worktree; a shell runs it")
    made.add_argument("--base", help="what to compare with (default: the merge base of HEAD and origin's default branch)")
    made.add_argument("--head", default="HEAD", help="what is compared (default: HEAD)")
    made.add_argument("--repository", type=Path, default=Path(), help="the clone (default: this folder)")
    made.add_argument("--fail-if", action="append", default=[], metavar="CONDITION", help="as of `wsbench duel`; repeatable")
    made.add_argument("--path", default="/echo", help="path of the WebSocket (default: /echo)")
    made.add_argument("--budget", default="5m", help="time for all rounds (default: 5m)")
    made.add_argument("--wsbench", default="wsbench", help="the command wsbench (default: the one on the PATH)")
    made.add_argument("--comment", type=Path, default=Path("duel.md"), help="the file to write (default: duel.md)")
    return made


def _carried_out(asked: argparse.Namespace, duel_options: list[str], place: Path) -> int:
    repository = asked.repository.resolve()
    head = _commit(repository, asked.head)
    base = _commit(repository, asked.base) if asked.base else _merge_base(repository, head)
    trees = {"base": (place / "base", base), "head": (place / "head", head)}
    try:
        for name, (tree, commit) in trees.items():
            _git(repository, "worktree", "add", "--detach", "--quiet", str(tree), commit)
            _build(asked.build, tree, name)
        commands = [_started_in(tree, asked.start) for tree, _ in trees.values()]
        gates = [word for gate in asked.fail_if for word in ("--fail-if", gate)]
        given = ["--markdown", "--path", asked.path, "--budget", asked.budget, *gates, *duel_options]
        command = [*shlex.split(asked.wsbench), "duel", *commands, *given]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.stdout:
            told = _told(done.stdout, place, base, head)
            asked.comment.write_text(f"{MARK}\n{told}", encoding="utf-8")
            print(told)
        if done.returncode == NOTHING_USABLE:
            print("duel_pull_request: nothing that was measured can be used, so nothing is decided", file=sys.stderr)
        return done.returncode
    finally:
        for tree, _ in trees.values():
            shutil.rmtree(tree, ignore_errors=True)
        _git(repository, "worktree", "prune")


def _told(markdown: str, place: Path, base: str, head: str) -> str:
    """The result with the commits in place of temporary folders."""
    return markdown.replace(str(place / "base"), base[:12]).replace(str(place / "head"), head[:12])


def _started_in(tree: Path, start: str) -> str:
    """The start command as a contender of `wsbench duel`: it runs in its worktree."""
    words = shlex.split(start)
    if not words:
        raise Wrong("--start: found no words, allowed: a program and its arguments")
    if "/" not in words[0] and shutil.which(words[0]) is None:
        raise Wrong(f"--start: found no program {words[0]!r}; write ./{words[0]} for one of the repository")
    return shlex.join(["env", "-C", str(tree), *words])


def _build(command: str, tree: Path, name: str) -> None:
    if command and subprocess.run(command, shell=True, cwd=tree, stdout=sys.stderr).returncode != 0:
        raise Wrong(f"the build of {name} failed: {command}")


def _merge_base(repository: Path, head: str) -> str:
    """With the first of these that exists."""
    for branch in ("origin/HEAD", "origin/main", "origin/master", "main", "master"):
        found = subprocess.run(["git", "-C", repository, "merge-base", head, branch], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.strip()
    raise Wrong("found no branch to compare with; give --base (a shallow clone lacks the history: git fetch --unshallow)")


def _commit(repository: Path, name: str) -> str:
    return _git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", why=f"{repository} has no commit {name!r}")


def _git(repository: Path, *words: str, why: str | None = None) -> str:
    done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise Wrong(why or f"git {words[0]}: {said[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
