"""Files that the user names: what is written, what is never replaced, and what is never read."""

import os
import socket
import stat
import subprocess
import sys
import threading

import pytest

from wsbench import cli
from wsbench.records.errors import UserError
from wsbench.records.files import require_writable, write_output, write_whole


def written(file, content=b"content\n"):
    require_writable("--csv", file)
    write_output(file, content)


def test_a_new_and_a_regular_file_are_written_whole(tmp_path):
    file = tmp_path / "out"
    written(file, b"before")
    before = file.stat().st_ino
    written(file)
    assert file.read_bytes() == b"content\n"
    assert file.stat().st_ino != before  # renamed, not overwritten: a reader sees one or the other
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_cannot_be_written_is_told_by_the_files_own_name(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        write_whole(tmp_path / "none" / "report.html", b"content")
    assert error.value.filename == str(tmp_path / "none" / "report.html")


def test_a_link_to_a_file_is_followed_and_stays(tmp_path):
    (tmp_path / "else").mkdir()
    target, link = tmp_path / "else" / "target", tmp_path / "link"
    target.write_bytes(b"before")
    link.symlink_to(target)
    written(link)
    assert link.is_symlink()
    assert target.read_bytes() == b"content\n"


def test_a_device_is_written_into(tmp_path):
    ours, theirs = os.openpty()
    device, link = os.ttyname(theirs), tmp_path / "link"
    link.symlink_to(device)
    for path in (link, link.resolve()):
        written(path)
        assert os.read(ours, 100) == b"content\r\n"
    assert stat.S_ISCHR(os.lstat(device).st_mode)
    assert link.is_symlink()
    os.close(ours)
    os.close(theirs)


def test_a_pipe_is_written_into(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    written(pipe)
    reader.join()
    assert got == [b"content\n"]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_pipe_without_a_reader_is_named_and_waited_for(tmp_path, capsys):
    pipe, said = tmp_path / "pipe", ""
    os.mkfifo(pipe)
    writer = threading.Thread(target=written, args=(pipe,), daemon=True)
    writer.start()
    while not said and writer.is_alive():
        said = capsys.readouterr().err
    assert said == f"wsbench: {pipe}: nobody reads this pipe; waiting for a reader\n"
    assert pipe.read_bytes() == b"content\n"
    writer.join()


@pytest.mark.parametrize("redirected", [True, False], ids=["to a file", "to a pipe"])
def test_standard_output_by_its_path(tmp_path, redirected):
    """As in a container, where /dev/stdout is a link to /proc/self/fd/1 and root could replace it."""
    link, out = tmp_path / "stdout", tmp_path / "out"
    link.symlink_to("/proc/self/fd/1")
    code = (
        "import sys; from pathlib import Path; from wsbench.records.files import require_writable, write_output\n"
        f"file = Path({str(link)!r}); print('before'); require_writable('OUT', file)\n"
        "write_output(file, b'content\\n'); print('after')"
    )
    with out.open("wb") as opened:
        done = subprocess.run([sys.executable, "-c", code], stdout=opened if redirected else subprocess.PIPE, check=True)
    assert (out.read_bytes() if redirected else done.stdout) == b"before\ncontent\nafter\n"
    assert link.is_symlink()


def seen(file):
    """What is at a path, without the time it was read."""
    found = os.lstat(file) if os.path.lexists(file) else None
    return found and (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@pytest.mark.parametrize("kind", ["folder", "dangling", "loop", "socket", "missing"])
def test_what_cannot_be_written_is_named_before_any_work(tmp_path, kind):
    file = tmp_path / "out"
    if kind == "folder":
        file.mkdir()
    elif kind == "dangling":
        file.symlink_to(tmp_path / "nothing")
    elif kind == "loop":
        file.symlink_to(file)
    elif kind == "socket":
        os.mknod(file, stat.S_IFSOCK | 0o600)
    else:
        file = tmp_path / "no" / "out"
    before = seen(file)
    with pytest.raises(UserError, match=r"--csv .*out"):
        require_writable("--csv", file)
    with pytest.raises((UserError, OSError)):
        write_output(file, b"content")
    assert seen(file) == before


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_file_of_a_run_replaces_nothing_else(tmp_path, kind):
    file, target = tmp_path / "report.html", tmp_path / "target"
    target.write_bytes(b"before")
    if kind == "link":
        file.symlink_to(target)
    else:
        os.mkfifo(file)
    before = seen(file)
    with pytest.raises(UserError, match="not replaced"):
        write_whole(file, b"content")
    assert seen(file) == before
    assert target.read_bytes() == b"before"


#: Words of the command line in which FILE is read.
READ = {
    "payload": ["load", "ws://127.0.0.1:PORT/", "--file", "FILE"],
    "payload of a started server": ["load", "ws://127.0.0.1:PORT/", "--start", "true", "--file", "FILE"],
    "certificates": ["load", "wss://127.0.0.1:PORT/", "--ca", "FILE"],
    "certificates of a document": ["load", "https://127.0.0.1:PORT/", "--ca", "FILE"],
    "session": ["load", "ws://127.0.0.1:PORT/", "--session", "FILE"],
    "session check": ["session", "check", "FILE"],
    "archive": ["session", "from-har", "FILE"],
    "columns": ["load", "ws://127.0.0.1:PORT/", "--session", "text", "--data", "FILE"],
    "cluster": ["load", "ws://127.0.0.1:PORT/", "--cluster", "FILE"],
    "experiment": ["plan", "FILE"],
    "hosts": ["size", "-c", "1", "--rate", "1", "--from", ".", "--hosts", "FILE"],
    "campaign": ["report", "FILE"],
}


@pytest.mark.parametrize("kind", ["endless", "pipe", "folder", "too large"])
@pytest.mark.parametrize("words", READ.values(), ids=READ)
def test_only_a_regular_file_of_a_bounded_size_is_read(tmp_path, monkeypatch, capsys, words, kind):
    file = tmp_path / "file.toml"
    if kind == "endless":
        file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        with file.open("wb") as opened:
            opened.truncate(300 << 20)  # takes no disk
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
        words = [word.replace("FILE", str(file)).replace("PORT", port) for word in words]
        monkeypatch.setattr(sys, "argv", ["wsbench", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (2, ""), shown.err
    assert shown.err.startswith("wsbench: ")
    assert "file.toml" in shown.err
    assert shown.err.count("\n") == 1, shown.err
    assert not (tmp_path / "runs").exists()
