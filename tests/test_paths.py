"""The files that kgen writes whole: new ones, existing ones, links, devices and pipes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from running import ROOT

from kgen import paths
from kgen.errors import DiskError


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_new_file_is_readable_by_all(tmp_path: Path) -> None:
    paths.write_whole(tmp_path / "folder" / "file", ["a", "b"])
    assert (tmp_path / "folder" / "file").read_text() == "ab" and mode(tmp_path / "folder" / "file") == 0o644


def test_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(0o600)
    paths.write_whole(file, "new")
    assert (file.read_text(), mode(file)) == ("new", 0o600)


def test_existing_file_keeps_its_owner(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root may give a file away")
    file = tmp_path / "file"
    file.write_text("old")
    os.chown(file, 1234, 4321)
    paths.write_whole(file, "new")
    assert (file.read_text(), file.stat().st_uid, file.stat().st_gid) == ("new", 1234, 4321)


def test_file_of_another_owner_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    file = tmp_path / "file"
    file.write_text("old")
    node = file.stat().st_ino
    monkeypatch.setattr(os, "chown", refused)
    paths.write_whole(file, "new")
    assert (file.read_text(), file.stat().st_ino, os.listdir(tmp_path)) == ("new", node, ["file"])


def test_symbolic_link_leads_to_the_new_text(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    file, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    paths.write_whole(link, "new")
    assert link.is_symlink() and file.read_text() == "new"


def test_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    paths.write_whole(pipe, ["a", "b"])
    reader.join()
    assert read == ["ab"] and pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """A device that drops all text, in a folder of its own: no test writes to the machine's."""
    file = tmp_path / "null"
    try:
        os.mknod(file, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        file.write_text("")
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    return file


def test_device_is_written_to_and_stays_a_device(device: Path) -> None:
    paths.write_whole(device, "text")
    assert device.is_char_device() and os.listdir(device.parent) == ["null"]


def test_link_to_a_device_is_no_ordinary_file(device: Path) -> None:
    link = device.with_name("link")
    link.symlink_to(device)
    paths.check_writable(link)
    paths.write_whole(link, "text")
    assert not paths.is_ordinary(link) and device.is_char_device() and link.is_symlink()


def test_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    paths.check_writable(Path("-"))
    paths.write_whole(Path("-"), ["a", "b"])
    assert capsys.readouterr().out == "ab" and not Path("-").exists()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_output_of_the_process_is_written_to_where_a_shell_redirected_it(tmp_path: Path, name: str) -> None:
    code = f"from kgen import paths; print('before'); paths.write_whole(paths.Path({name!r}), 'text\\n'); print('after')"
    with open(tmp_path / "out", "w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert (tmp_path / "out").read_text() == "before\ntext\nafter\n"


def test_folder_that_is_missing_is_told_before_long_work(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="no such folder"):
        paths.check_writable(tmp_path / "missing" / "file")
