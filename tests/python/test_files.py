"""Files that are written aside: which names they take, and which kinds of file are written through or refused."""

import errno
import lzma
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cli import files, json_file

ROOT = Path(__file__).resolve().parents[2]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def node(path, kind, major, minor):
    """A device node of the test's own, or a skip."""
    try:
        os.mknod(path, kind | 0o600, os.makedev(major, minor))
        if kind == stat.S_IFCHR:
            os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        pytest.skip(f"no device can be made here: {error.strerror}")
    return path


def write_in_pieces(path, text):
    with files.whole(path) as file:
        file.write(b"?" + text[1:].encode())
        file.seek(0)
        file.write(text[:1].encode())


WAYS = pytest.mark.parametrize("write", [files.replace, write_in_pieces])


@WAYS
def test_a_link_stays_and_its_file_is_replaced(tmp_path, write):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_text("old")
    (tmp_path / "link").symlink_to("far/file")
    (tmp_path / "dangling").symlink_to("far/new")
    write(tmp_path / "link", "new")
    write(tmp_path / "dangling", "first")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "dangling").is_symlink()
    assert (tmp_path / "far" / "file").read_text() == "new"
    assert (tmp_path / "far" / "new").read_text() == "first"
    assert names(tmp_path / "far") == ["file", "new"]


@pytest.mark.parametrize("write", [files.replace, files.create, write_in_pieces])
def test_what_cannot_be_written_is_named_and_no_file_beside_it(tmp_path, write):
    with pytest.raises(FileNotFoundError) as raised:
        write(tmp_path / "none" / "file", "new")
    assert raised.value.filename == str(tmp_path / "none" / "file")


def test_what_fails_leaves_the_old_file(tmp_path):
    (tmp_path / "file").write_text("old")
    with pytest.raises(KeyError), files.whole(tmp_path / "file") as file:
        file.write(b"half")
        raise KeyError
    assert (tmp_path / "file").read_text() == "old"
    assert names(tmp_path) == ["file"]


@WAYS
def test_a_fifo_is_written_through(tmp_path, write):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    text = "x" * (1 << 20)  # more than a pipe holds
    write(fifo, text)
    reader.join(60)
    assert read == [text]
    assert fifo.is_fifo() and names(tmp_path) == ["fifo"]


@WAYS
def test_a_character_device_is_written_through(tmp_path, write):
    null = node(tmp_path / "null", stat.S_IFCHR, 1, 3)
    full = node(tmp_path / "full", stat.S_IFCHR, 1, 7)
    write(null, "away")
    with pytest.raises(OSError) as raised:
        write(full, "text")
    assert raised.value.errno == errno.ENOSPC
    assert null.is_char_device() and full.is_char_device() and names(tmp_path) == ["full", "null"]


@pytest.mark.parametrize("name", ["/dev/stdout", "out"])
def test_standard_output_is_written_between_what_is_printed(tmp_path, name):
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); from pathlib import Path; from cli import files\n"
        f"print('before'); files.replace(Path({name!r}), 'text\\n'); print('after')"
    )
    with open(tmp_path / "out", "w") as out:
        subprocess.run([sys.executable, "-c", script], stdout=out, cwd=tmp_path, check=True)
    assert (tmp_path / "out").read_text() == "before\ntext\nafter\n"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("path", ["", "/", "folder"])
def test_a_folder_is_refused(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    with pytest.raises(OSError, match="it is a folder: name a file to be written"):
        files.replace(Path(path), "text")
    assert names(tmp_path) == ["folder"]


def test_a_block_device_is_refused(tmp_path):
    block = node(tmp_path / "block", stat.S_IFBLK, 240, 240)  # never opened
    with pytest.raises(OSError, match="it is a block device or a socket: name a file to be written"):
        files.replace(block, "text")
    assert block.is_block_device() and names(tmp_path) == ["block"]


def test_create_never_writes_over_a_name(tmp_path):
    files.create(tmp_path / "new", "text")
    with pytest.raises(FileExistsError):
        files.create(tmp_path / "new", "other")
    assert ((tmp_path / "new").read_text(), names(tmp_path)) == ("text", ["new"])


def test_a_name_of_packed_json_has_its_text_packed(tmp_path):
    for name in ("a.json.xz", "b.json.xz"):
        files.replace(tmp_path / name, '{"a": 1}\n')
        assert lzma.decompress((tmp_path / name).read_bytes()) == b'{"a": 1}\n'
        assert json_file.read(tmp_path / name) == {"a": 1}
    assert (tmp_path / "a.json.xz").read_bytes() == (tmp_path / "b.json.xz").read_bytes()
    files.replace(tmp_path / "c.json", '{"a": 1}\n')
    assert (tmp_path / "c.json").read_text() == '{"a": 1}\n'
