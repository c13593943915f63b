"""Builds: reading a candidate's literals, keeping by content, what a killed build leaves, hashes and resources."""

import ctypes
import fcntl
import json
import os
import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from candidates import KERNEL, render

from kgen.candidate import Candidate, Trust
from kgen.devices.machine import cxx
from kgen.errors import DiskError, EvaluatorError
from kgen.evaluator.candidates.build import Builder, compiler_version, copy_library, parse_resources, read_extension
from kgen.evaluator.runtime.locks import DeviceLock
from kgen.evaluator.runtime.process import Server
from kgen.protocol import TRIES, BuildReport, Limits, Status

#: Macros that a compiler takes for ever to expand, and all memory.
DOUBLING = "\n".join(f"#define A{i + 1} A{i} A{i}" for i in range(40))

PTXAS = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3addILi4EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z3addILi4EEvPf
    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 34 registers, used 1 barriers, 512 bytes smem
"""


def test_the_literals_are_read_without_running_the_file():
    extension = read_extension("raise SystemExit\n" + render())
    assert extension.name.startswith("test_") and "gelu_softmax" in extension.cpp_source
    assert extension.cflags == ("-O3", "-march=native", "-fopenmp")


def test_a_library_is_copied_unless_it_is_gone(tmp_path):
    extension, scratch = read_extension(render()), tmp_path / "scratch"
    build = BuildReport(True, False, 0.0, True, str(tmp_path), "hash", "", "")
    scratch.mkdir()
    assert copy_library(extension, build, scratch) == {} == copy_library(None, build, scratch)
    library = tmp_path / extension.name / f"{extension.name}.so"
    library.parent.mkdir()
    library.write_text("code")
    (path,) = copy_library(extension, build, scratch).values()
    assert Path(path).parent == scratch and Path(path).read_text() == "code"


@pytest.mark.parametrize("source", [
    "x = 1", "def", "NAME = 'a'", "NAME = 'a/b'\nCPP_SOURCE = 'int x;'", "NAME = 'a'\nCPP_SOURCE = make()",
    "NAME = 'a'\nNAME = 'b'\nCPP_SOURCE = 'int x;'", "NAME = {[]}", f"x = {'-' * 100_000}1",
    f"NAME = {'a' * 5000!r}\nCPP_SOURCE = 'int x;'",
], ids=range(9))
def test_a_file_without_such_literals_has_nothing_to_build_ahead(source):
    assert read_extension(source) is None


def test_a_source_is_built_once(builder):
    source = render(kernel=KERNEL + "\n// once\n")
    first, second = builder.build(source), builder.build(source)
    assert (first.ok, first.cached, second.ok, second.cached) == (True, False, True, True)
    assert replace(first, cached=True) == second


def test_sources_that_compile_to_the_same_have_the_same_binary(builder):
    same = [builder.build(render(kernel=KERNEL + comment)).binary for comment in ("", "\n// more words\n")]
    other = builder.build(render(kernel=KERNEL.replace("0.70710678f", "0.7072f"))).binary
    assert same[0] == same[1] != other


def test_parts_of_a_source_are_one_library(builder):
    parts = 'extern "C" int two();\n#if !defined(PART) || PART == 0\nextern "C" int one() { return two() - 1; }\n#endif\n' \
        '#if !defined(PART) || PART == 1\nextern "C" int two() { return 2; }\n#endif\n'
    source = f"NAME = 'in_parts'\nPARTS = 2\nCFLAGS = ['-O0']\nCPP_SOURCE = {parts!r}\n"
    report = builder.build(source)
    assert report.ok, report.reason
    assert ctypes.CDLL(str(builder.directory / "in_parts" / "in_parts.so")).one() == 1
    assert read_extension(source).content == read_extension(source.replace("PARTS = 2", "")).content


def test_what_a_killed_build_left_is_built_anew(builder):
    source = render(kernel=KERNEL + "\n// killed\n")
    name = read_extension(source).name
    folder = builder.directory / name
    folder.mkdir()
    (folder / "lock").touch()
    (folder / f"{name}.so").write_bytes(b"half a library")
    report = builder.build(source)
    assert report.ok and not report.cached


def test_a_library_that_was_changed_is_built_anew(builder):
    source = render(kernel=KERNEL + "\n// changed\n")
    report = builder.build(source)
    name = read_extension(source).name
    (builder.directory / name / f"{name}.so").write_bytes(b"something else")
    again = builder.build(source)
    assert not again.cached and again.binary == report.binary


def test_a_record_that_cannot_be_read_is_ignored(builder):
    source = render(kernel=KERNEL + "\n// record\n")
    builder.build(source)
    marker = builder.directory / f"{read_extension(source).name}.json"
    marker.write_text(json.dumps({"content": read_extension(source).content, "from": "a later version"}))
    assert not builder.build(source).cached


def test_a_build_that_does_not_end_is_a_timeout(builder):
    source = render(kernel=f"#define A0 x\n{DOUBLING}\nint A40;\n")
    before, builder._limits = builder._limits, Limits(build_seconds=0.5)
    try:
        report = builder.build(source)
    finally:
        builder._limits = before
    assert not report.ok and report.timed_out and "0.5 s" in report.reason


def test_a_compiler_in_a_private_folder_is_reached(tmp_path, monkeypatch):
    compiler = tmp_path / "private" / "own-g++"
    compiler.parent.mkdir(mode=0o700)
    compiler.write_text('#!/bin/sh\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    server = Server(tmp_path / "home", {})
    try:
        report = Builder(tmp_path / "home", "cpu", "any", server).build(render())
    finally:
        server.close()
    assert report.ok, report.reason


def test_resources_are_read_from_the_assemblers_words():
    (kernel,) = parse_resources(PTXAS)
    assert (kernel.name, kernel.registers, kernel.shared_bytes, kernel.spill_bytes) == ("add<4>", 34, 512, 20)


def test_same_source_is_built_once_by_builders_of_two_sweeps(evaluator):
    source = render(kernel=KERNEL + "\n// two sweeps\n")
    with ThreadPoolExecutor(4) as threads:
        reports = list(threads.map(lambda builder: builder.build(source), [evaluator.builder() for _ in range(4)]))
    assert sorted(report.cached for report in reports) == [False, True, True, True]
    assert len({report.binary for report in reports}) == 1


def test_lock_of_a_killed_build_is_held_until_its_compilers_have_ended(builder, evaluator):
    """Whoever waits for the lock finds no compiler that still writes into the folder."""
    source = render(kernel=f"#define A0 x\n{DOUBLING}\nint A40;\n")
    (builder.directory / read_extension(source).name).mkdir()
    lock = os.open(builder.directory / f"{read_extension(source).name}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with evaluator.server.spawn("build", builder._options(), evaluator.home / "logs" / "held.log") as child:
        child.channel.send(asdict(read_extension(source)), [lock])
        os.close(lock)  # as when the process that asked for the build is killed
        again = os.open(builder.directory / f"{read_extension(source).name}.lock", os.O_RDWR)
        wait_until(lambda: compiling(builder.directory))
        with pytest.raises(BlockingIOError):
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)
    assert not compiling(builder.directory)


def test_other_compilers_architectures_environments_and_headers_have_builds_of_their_own(evaluator, builder, monkeypatch, tmp_path):
    header = tmp_path / "own.h"
    header.write_text("#define OWN 1\n")
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:3]:
        folder.chmod(folder.stat().st_mode | 0o055)
    source = render(kernel=KERNEL + f'\n#include "{header}"\n')
    assert not builder.build(source).cached
    assert evaluator.builder().build(source).cached
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\nexec g++ "$@"\n')
    compiler.chmod(0o755)

    def is_built(arch=evaluator.environment.arch):
        return not Builder(evaluator.home, "cpu", arch, evaluator.server).build(source).cached

    for name, value in (("CXX", compiler), ("CPATH", tmp_path)):
        with monkeypatch.context() as patch:
            patch.setenv(name, str(value))
            assert is_built(), name
    assert is_built("another")
    header.write_text("#define OWN 2\n")
    assert is_built()


def test_compiler_that_is_asked_and_named_is_the_one_that_builds(tmp_path, evaluator, monkeypatch):
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "another compiler" || { echo "another ran" >&2; exec g++ "$@"; }\n')
    compiler.chmod(0o755)
    for folder in tmp_path.parents[:3]:
        folder.chmod(folder.stat().st_mode | 0o055)
    monkeypatch.delenv("CXX", raising=False)
    usual = Builder(evaluator.home, "cpu", evaluator.environment.arch, evaluator.server)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with closing(Server(evaluator.home, {})) as server:
        builder = Builder(evaluator.home, "cpu", evaluator.environment.arch, server)
        report = builder.build(render(kernel=KERNEL + "\n// another compiler\n"))
    assert compiler_version(cxx()) == "another compiler" and builder.directory != usual.directory
    assert report.ok and "another ran" in Path(report.log).read_text()


#: A compiler in which something is killed: itself, the assembler that it runs, or ninja, which ran it.
KILLS = {
    "itself": "kill -9 $$",
    "the assembler": 'exec g++ -B "$(dirname "$0")" "$@"',
    "ninja": "kill -9 $(ps -o ppid= -p $PPID) $PPID",
}


@pytest.fixture
def killed_compiler(tmp_path, evaluator, monkeypatch):
    """Makes a builder in whose first so many builds something is killed; and a list of the builds."""
    compiler, assembler, builds = tmp_path / "c++", tmp_path / "as", []
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    assembler.write_text("#!/bin/sh\nkill -9 $$\n")
    compile_ = Builder._compile

    def make(times, victim):
        def counted(*arguments):
            builds.append(victim)
            kill = KILLS[victim] if len(builds) <= times else ":"
            compiler.write_text(f'#!/bin/sh\ncase "$*" in *-version*) ;; *) {kill} ;; esac\nexec g++ "$@"\n')
            return compile_(*arguments)

        compiler.write_text('#!/bin/sh\nexec g++ "$@"\n')
        for file in (compiler, assembler):
            file.chmod(0o755)
        monkeypatch.setenv("CXX", str(compiler))
        monkeypatch.setattr("kgen.evaluator.candidates.build._PAUSE_SECONDS", 0.0)
        monkeypatch.setattr(Builder, "_compile", counted)
        return Builder(evaluator.home, "cpu", evaluator.environment.arch, evaluator.server)

    return make, builds


@pytest.mark.parametrize("victim", KILLS)
def test_compiler_that_was_killed_builds_again(killed_compiler, victim):
    make, builds = killed_compiler
    report = make(2, victim).build(render(kernel=KERNEL + f"\n// killed, {victim}\n"))
    assert (report.ok, report.from_outside, len(builds)) == (True, False, TRIES), report.reason


def test_source_whose_compiler_is_killed_in_each_try_is_not_at_fault(killed_compiler, evaluator):
    make, builds = killed_compiler
    source = render(kernel=KERNEL + "\n// killed each time\n")
    report = make(9, "itself").build(source)
    assert (report.ok, report.from_outside, len(builds)) == (False, True, TRIES)
    candidate = Candidate(source, "by hand", {}, "cpu", origin=Trust.FOREIGN)
    assert evaluator.evaluate(candidate, report).status is Status.INFRA_ERROR


def test_source_with_a_fault_is_compiled_once(killed_compiler):
    make, builds = killed_compiler
    report = make(0, "itself").build(render(kernel="this is no C++"))
    assert (report.ok, report.from_outside, len(builds)) == (False, False, 1)


def test_two_names_of_one_compiler_are_told_as_one():
    assert compiler_version("c++") == compiler_version("g++")


def test_compiler_that_takes_too_much_memory_is_a_build_error(builder, monkeypatch):
    monkeypatch.setattr(builder, "_limits", Limits(build_bytes=200 << 20))
    report = builder.build(render(kernel=f"#define A0 x\n{DOUBLING}\nint A40;\n// memory\n"))
    assert not report.ok and not report.timed_out
    assert "memory" in report.reason


def test_build_that_fails_on_a_full_disk_is_no_fault_of_its_source(builder, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    with pytest.raises(DiskError, match="0 MB of disk left"):
        builder.build(render(kernel="this is no C++"))


def test_no_build_runs_during_a_timing_on_the_cpu(tmp_path, evaluator):
    """Compilers wait for a timing to end, and a timing for compilers."""
    lock = DeviceLock("device", folder=tmp_path)
    builder = Builder(evaluator.home, "cpu", evaluator.environment.arch, evaluator.server,
                      lock=DeviceLock("device", folder=tmp_path))
    first, second = (render(kernel=KERNEL + f"\n// during {number}\n") for number in range(2))
    with ThreadPoolExecutor(2) as threads:
        with lock.timing():
            building = threads.submit(builder.build, first)
            time.sleep(0.3)
            assert not building.done() and not (builder.directory / read_extension(first).name).exists()
        assert building.result().ok
        building = threads.submit(builder.build, second)
        wait_until(lambda: compiling(builder.directory))
        with lock.timing():
            assert not compiling(builder.directory)
        assert building.result().ok


def test_compilers_that_run_beside_timings_give_way_to_them(tmp_path, evaluator, monkeypatch):
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\necho "at niceness $(nice)" $(cat /proc/self/autogroup) >&2\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    for folder in tmp_path.parents[:3]:
        folder.chmod(folder.stat().st_mode | 0o055)
    monkeypatch.setenv("CXX", str(compiler))
    locks = {"alone": DeviceLock("device", folder=tmp_path), "beside": None}
    with closing(Server(evaluator.home, {})) as server:  # which knows the compiler
        logs = {
            name: Builder(evaluator.home, "cpu", evaluator.environment.arch, server, lock=lock).build(
                render(kernel=KERNEL + f"\n// {name}\n")).log
            for name, lock in locks.items()
        }
    for name, more in (("alone", 0), ("beside", 5)):
        found = re.search(r"at niceness (\d+)(?: \S+ nice (\d+))?$", Path(logs[name]).read_text(), re.MULTILINE)
        assert int(found[1]) == os.nice(0) + more
        assert found[2] in (None, found[1])  # of the session, where Linux counts by sessions


def test_whoever_waits_for_a_build_is_let_go_when_the_evaluator_closes(tmp_path, evaluator):
    stop = threading.Event()
    builder = Builder(evaluator.home, "cpu", evaluator.environment.arch, evaluator.server, stop=stop,
                      lock=DeviceLock("device", folder=tmp_path, stop=stop))
    source = render(kernel=KERNEL + "\n// let go\n")
    with ThreadPoolExecutor(2) as threads, DeviceLock("device", folder=tmp_path).timing():
        waiting = [threads.submit(builder.build, source) for _ in range(2)]  # for the timing, and for the lock
        time.sleep(0.1)
        stop.set()
        for one in waiting:
            with pytest.raises(EvaluatorError):
                one.result(timeout=5)


def compiling(folder):
    """Whether a compiler runs that builds below ``folder``."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, where = (process / "cmdline").read_bytes(), os.readlink(process / "cwd")
        except OSError:
            continue
        if b"cc1plus" in command and where.startswith(str(folder)):
            return True
    return False


def wait_until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
