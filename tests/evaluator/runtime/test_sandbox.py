"""The sandbox: what a candidate's process, and those that it starts, may do to the system and to other candidates."""

import json
import mmap
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from candidates import KERNEL, plain, render

from kgen.candidate import Candidate
from kgen.evaluator.candidates.build import read_extension
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.runtime.arena import Arena
from kgen.protocol import Accuracy, Status

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")

ORDINARY_USER = 4321

#: Run by root: becomes an ordinary user, who sees Python and the folder that it is given.
AS_ORDINARY_USER = f"""
import ctypes, os, sys
from pathlib import Path
from kgen.evaluator.runtime import sandbox

if ctypes.CDLL(None).unshare(0x00020000):
    sys.exit("there are no mount namespaces")
sandbox.own_proc()
home = Path(sys.argv[1])
sandbox.open_way([*sandbox._needed(), home])
os.chown(home, {ORDINARY_USER}, {ORDINARY_USER})
os.setgroups([])
os.setresgid({ORDINARY_USER}, {ORDINARY_USER}, {ORDINARY_USER})
os.setresuid({ORDINARY_USER}, {ORDINARY_USER}, {ORDINARY_USER})
os.chdir(home)
"""

JUDGE_ALL = """
import json
from kgen.candidate import Candidate
from kgen.evaluator.evaluator import Evaluator
from kgen.problems.problem import read_problem
from kgen.protocol import Accuracy, Limits

notices = []
problem = read_problem("linear_gelu_softmax", {"batch_size": "70", "in_features": "8", "out_features": "8"})
limits = Limits(host_bytes=2 << 30, scratch_bytes=8 << 20, processes=64)
with Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=home, baselines=(), limits=limits,
               notice=notices.append) as evaluator:
    found = {}
    for name, source in json.loads(sys.argv[2]).items():
        result = evaluator.evaluate(Candidate(source, "", {}, "cpu"), evaluator.builder().build(source))
        found[name] = [result.status, result.reason]
print(json.dumps([found, notices]))
"""

THREADS = "import time\nfor _ in range(2000):\n    threading.Thread(target=time.sleep, args=(20,), daemon=True).start()"
SUBPROCESSES = """
import subprocess, time
more = "held = bytearray(700 << 20); import time; time.sleep(20)"
for _ in range(2):
    subprocess.Popen([sys.executable, "-c", more])
time.sleep(20)
"""
MEMORY_FILES = """
for _ in range(8):
    os.posix_fallocate(os.memfd_create("held"), 0, 200 << 20)
return y
"""
FORGED = """
for fd in range(3, 64):
    try:
        os.write(fd, b'j{"first":{"items":[]}}')
    except OSError:
        continue
return y
"""


@pytest.fixture
def limited(evaluator, judge):
    """Judges a source under other limits."""

    def run(source, **limits):
        before, evaluator.limits = evaluator.limits, replace(evaluator.limits, **limits)
        try:
            return judge(source)
        finally:
            evaluator.limits = before

    return run


def run_alone(script, *arguments):
    """What ``script`` prints as JSON, run in a process of its own."""
    paths = [str(Path(__file__).parents[1]), *sys.path]
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})
    if "there are no mount namespaces" in ended.stderr:
        pytest.skip(ended.stderr.strip())
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


# ---- a user of its own -------------------------------------------------------------------------------------


@as_root
def test_a_candidate_is_a_user_without_a_name(judge, sandboxed):
    user = int(judge(plain("raise ValueError(os.getuid())")).reason.rpartition(" ")[2])
    assert 61184 <= user < 65520


@as_root
def test_a_candidate_has_no_capability(judge, sandboxed):
    read = "raise ValueError([line for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapPrm'))])"
    assert judge(plain(read)).reason.count("0000000000000000") == 2


@as_root
def test_a_candidate_does_not_read_what_only_root_may(judge, sandboxed):
    assert "Permission denied" in judge(plain("open('/etc/shadow').read()")).reason


def test_a_folder_that_is_closed_to_others_shows_only_what_a_candidate_needs(judge, sandboxed, tmp_path):
    tmp_path.parent.chmod(0o700)
    (tmp_path / "secret").write_text("x")
    assert judge(plain(f"open({str(tmp_path / 'secret')!r})")).status is Status.RUNTIME_ERROR


@as_root
def test_the_way_to_a_folder_opens_for_everybody_and_shows_nothing_beside_it(tmp_path):
    (tmp_path / "closed" / "wanted").mkdir(parents=True)
    (tmp_path / "closed" / "wanted" / "file").write_text("found")
    (tmp_path / "closed" / "other").mkdir()
    (tmp_path / "closed").chmod(0o700)
    seen = run_alone(AS_ORDINARY_USER.replace("home]", "home / 'closed' / 'wanted']") + """
import json
closed = home / "closed"
print(json.dumps([os.listdir(closed), (closed / "wanted" / "file").read_text()]))
""", tmp_path)
    assert seen == [["wanted"], "found"]


@as_root
@pytest.mark.parametrize(
    "missing", ["an unprivileged user", "a limit on processes", "a scratch folder of limited size"])
def test_a_wall_that_is_missing_is_named(tmp_path, missing):
    names = run_alone("""
        import json, sys
        from pathlib import Path
        from kgen.evaluator.runtime import sandbox

        held = sandbox.Confinement(writable=[Path(sys.argv[1])], devices=[], user=None, mounts=False, address_space=None,
                          file_bytes=1 << 20, folder_bytes=1 << 20, processes=8)
        print(json.dumps(sandbox.confine(held)))
        """, tmp_path)
    assert missing in names


# ---- disk --------------------------------------------------------------------------------------------------


def test_a_candidate_cannot_fill_the_disk(limited, sandboxed):
    fill = "with open('big', 'wb') as file:\n    file.write(bytes(9 << 20))"
    assert "No space left" in limited(plain(fill), scratch_bytes=8 << 20).reason


def test_a_candidate_cannot_make_files_without_end(judge, sandboxed):
    assert "No space left" in judge(plain("for number in range(1 << 17):\n    open(str(number), 'w').close()")).reason


def test_output_without_end_has_an_end(judge):
    evaluation = judge(plain("for _ in range(5):\n    os.write(1, bytes(64 << 20))"))
    assert b"the output had %d bytes" % (256 << 20) in Path(evaluation.log).read_bytes()


def test_what_a_candidate_does_to_its_library_stays_with_it(judge, builder, sandboxed):
    source = render(after="open(_library._name, 'ab').write(b'more')")
    before = builder.build(source)
    judge(source)
    assert builder.binary(read_extension(source).name) == before.binary


def test_a_file_that_was_built_ahead_is_not_built_again(judge, sandboxed):
    evaluation = judge(render(after="import os\n        raise ValueError(os.path.getmtime(_library._name))"))
    assert float(evaluation.reason.rpartition(" ")[2]) < os.path.getmtime(evaluation.log)


# ---- builds ------------------------------------------------------------------------------------------------


def test_what_flags_make_the_shell_run_writes_nowhere_else(builder, sandboxed, tmp_path):
    target = tmp_path / "written"
    source = render(kernel=KERNEL + "\n// flags\n").replace('"-fopenmp"', f'"-fopenmp", "`touch {target}`"')
    assert builder.build(source).ok
    assert not target.exists()


@as_root
def test_a_compiler_does_not_read_what_only_root_may(builder, sandboxed):
    include = '__asm__(".section .rodata\\n.incbin \\"/etc/shadow\\"\\n.text");'
    assert not builder.build(render(kernel=KERNEL + include)).ok


# ---- where processes do not start --------------------------------------------------------------------------


def test_where_no_process_starts_as_another_user_candidates_run_as_this_one(problem, tmp_path, monkeypatch):
    notices = []
    with Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=tmp_path, baselines=(),
                   notice=notices.append) as evaluator:
        spawn = evaluator.server.spawn
        monkeypatch.setattr(evaluator.server, "spawn", lambda kind, options, *rest: spawn(
            kind, options | ({"scratch": "/nowhere"} if options.get("own_user") else {}), *rest))
        source = plain("return y")
        evaluation = evaluator.evaluate(Candidate(source, "", {}, "cpu"), evaluator.builder().build(source))
    assert evaluation.status is Status.OK
    assert [text for text in notices if "no process starts as another user here" in text]


# ---- processes and memory ----------------------------------------------------------------------------------


def test_threads_and_processes_are_limited(limited, sandboxed):
    assert "can't start new thread" in limited(plain(THREADS), processes=64).reason


def test_a_fork_bomb_hurts_nobody(judge, sandboxed):
    assert judge(plain("while True:\n    os.fork()")).status is not Status.OK
    assert judge(plain("return y")).status is Status.OK


def test_the_memory_of_what_a_candidate_starts_counts(limited, sandboxed):
    evaluation = limited(plain(SUBPROCESSES), host_bytes=1 << 30)
    assert (evaluation.status, "2 processes" in evaluation.reason) == (Status.OUT_OF_MEMORY, True), evaluation.reason


def test_files_in_memory_count(limited, sandboxed):
    assert limited(plain(MEMORY_FILES), host_bytes=1 << 30).status is Status.OUT_OF_MEMORY


@pytest.mark.parametrize("how", ["", ", start_new_session=True"])
def test_a_process_that_lives_on_is_found(judge, how):
    start = f"import subprocess\nself.kept = self.kept or subprocess.Popen(['sleep', '100']{how})\nreturn y"
    evaluation = judge(plain(start))
    assert (evaluation.status, evaluation.reason) == (Status.SUSPICIOUS, "it left a process running: sleep")


def test_an_orphan_is_found(judge):
    evaluation = judge(plain("os.system('setsid sleep 100 > /dev/null 2>&1 &')\nreturn y"))
    assert evaluation.status is Status.SUSPICIOUS and "sleep" in evaluation.reason


def test_a_process_that_has_ended_is_nobodys_affair(judge):
    assert judge(plain("import subprocess\nsubprocess.run(['true'])\nreturn y")).status is Status.OK


# ---- what others read --------------------------------------------------------------------------------------


def test_an_answer_that_a_candidate_sends_is_not_taken_for_the_harnesss(judge):
    assert "not the harness's" in judge(plain(FORGED)).reason


@pytest.mark.parametrize("change", [
    lambda fd: os.pwrite(fd, b"x", 0),
    lambda fd: os.ftruncate(fd, 0),
    lambda fd: os.ftruncate(fd, 1 << 20),
    lambda fd: mmap.mmap(fd, mmap.PAGESIZE),
    lambda fd: Path(f"/proc/self/fd/{fd}").write_bytes(b"x"),
], ids=["write", "shrink", "grow", "map", "open"])
def test_who_gets_an_arena_cannot_change_it(change):
    arena, _ = Arena.holding(torch.ones(8))
    with pytest.raises(PermissionError):
        change(arena.fd)
    arena.close()


def test_what_is_written_to_an_arena_by_mistake_stays_with_the_writer():
    arena, node = Arena.holding(torch.ones(8))
    Arena(os.dup(arena.fd), writable=False).read(node).zero_()
    assert Arena(arena.fd, writable=False).read(node).sum() == 8


def test_the_size_of_output_memory_cannot_be_changed():
    arena = Arena.create(4096)
    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, 0)
    arena.close()


# ---- an ordinary user --------------------------------------------------------------------------------------

USERS_SOURCES = {
    "honest": render(),
    "user": plain("raise ValueError(os.getuid())"),
    "capabilities": plain("raise ValueError([line for line in open('/proc/self/status') if 'CapEff' in line])"),
    "disk": plain("open('big', 'wb').write(bytes(9 << 20))"),
    "outside": plain("open('/tmp/kgen-test-outside', 'w')"),
    "threads": plain(THREADS),
    "network": plain("import socket\nsocket.create_connection(('127.0.0.1', 9), 1)"),
    "processes": plain("raise ValueError(len([p for p in os.listdir('/proc') if p.isdigit()]))"),
}


@pytest.fixture(scope="module")
def as_user(tmp_path_factory):
    """What became of candidates that an ordinary user judged, and the notices."""
    if os.geteuid() != 0:
        pytest.skip("run by an ordinary user, every other test is about one")
    home = tmp_path_factory.mktemp("user")
    found, notices = run_alone(AS_ORDINARY_USER + JUDGE_ALL, home, json.dumps(USERS_SOURCES))
    if notices:
        pytest.skip(notices[0])
    return found


@pytest.mark.parametrize(("name", "words"), [
    ("user", f"ValueError: {ORDINARY_USER}"),
    ("capabilities", "0000000000000000"),
    ("disk", "No space left"),
    ("outside", "Read-only file system"),
    ("threads", "can't start new thread"),
    ("network", "unreachable"),
    ("processes", "ValueError: 2"),
])
def test_the_walls_hold_for_an_ordinary_user(as_user, name, words):
    assert words in as_user[name][1]


def test_an_honest_file_is_ok_for_an_ordinary_user(as_user):
    assert as_user["honest"] == ["ok", ""]
