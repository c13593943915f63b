"""Nothing is lost: sweeps that are killed or interrupted at any moment, and go on."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import killed_sweeps
import pytest
from running import ROOT, SHORT_SWEEP, Ended, Home, end, seconds_until_none_is_left, wait, wait_for_event

from kgen.problems.problem import load
from kgen.tuning.design import captured

KILLS = int(os.environ.get("KGEN_KILLS", 8))


@dataclass(frozen=True)
class Killed:
    """A sweep that was killed many times: the candidates that it began and told of, in that order.

    ``equal`` are the lines that tell of two equal sweeps at once.
    """

    home: Home
    begun: list[str]
    told: list[str]
    equal: list[str]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A sweep with cheap judges that was killed many times, and then ended."""
    home = Home(tmp_path_factory.mktemp("killed"))
    (home.folder / "graphs").write_bytes(pickle.dumps(captured(load(killed_sweeps.PROBLEM))))
    script = str(Path(__file__).parents[1] / "killed_sweeps.py")
    ended = wait(home.popen([sys.executable, script, str(home.folder), str(KILLS)], PYTHONPATH=str(ROOT)))
    last, *equal = ended.out.splitlines()
    assert (ended.code, last) == (0, "0"), ended.err
    begun, told = ((home.folder / name).read_text().split() for name in ("begun", "told"))
    return Killed(home, begun, told, equal)


def test_one_sweep_goes_on_after_each_kill_to_its_end(killed: Killed) -> None:
    assert killed.home.ask("SELECT state FROM sweep") == [("finished",)]


def test_no_evaluation_is_lost(killed: Killed) -> None:
    kept = {row[0] for row in killed.home.ask("SELECT candidate_id FROM trial")}
    assert set(killed.told) <= kept
    assert len(kept) == killed_sweeps.BUDGET


def test_no_evaluation_is_doubled(killed: Killed) -> None:
    rows = killed.home.ask("SELECT candidate_id, count(*) FROM evaluation GROUP BY candidate_id")
    assert {count for _, count in rows} == {1}
    assert max(Counter(killed.told).values()) == 1


def test_candidate_is_judged_again_only_where_a_kill_cut_it_off(killed: Killed) -> None:
    again = len(killed.begun) - len(set(killed.begun))
    assert again <= KILLS * killed_sweeps.DEVICES


def test_database_is_whole(killed: Killed) -> None:
    assert killed.home.ask("PRAGMA integrity_check") == [("ok",)]
    assert killed.home.ask("PRAGMA foreign_key_check") == []


def test_second_of_two_equal_sweeps_waits_and_judges_nothing_again(killed: Killed) -> None:
    home = Home(killed.home.folder / "equal")
    first, notice, *codes = killed.equal
    assert notice.startswith(f"an equal sweep runs already (process {first})") and codes == ["0", "0"]
    counted = home.ask("SELECT candidate_id, count(*) FROM evaluation GROUP BY 1")
    assert [count for _, count in counted] == [1] * killed_sweeps.EQUAL_BUDGET
    assert home.ask("SELECT state FROM sweep") == [("finished",), ("finished",)]
    assert home.ask("SELECT count(*) FROM trial WHERE taken_over") == [(killed_sweeps.EQUAL_BUDGET,)]


# Real sweeps: compilers, workers, and all that they start -------------------------------------------------------

#: More of them, for an hour to spare: ``KGEN_KILLS=100 pytest tests/tuning/test_kills.py -k real``.
REAL_KILLS = int(os.environ.get("KGEN_KILLS", 1))
#: Seconds after the start, for kills before the first verdict, and after the latest verdict, for others: at most.
LONGEST_START, LONGEST_STEP = 3.0, 1.0
#: Without ``--time``, which ends a sweep on a busy machine before it can be killed.
REAL_SWEEP = (*SHORT_SWEEP, "--budget", str(1 + REAL_KILLS))


@dataclass(frozen=True)
class RealSweep:
    """A real sweep that was killed several times: what it told of before each kill, and the run that ended it."""

    home: Home
    told: frozenset[str]
    strays: tuple[str, ...]
    last: Ended
    evaluations: int  # that are stored at its end


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> RealSweep:
    """A sweep that was killed after one verdict and, of more kills, after two and while it started, and then ended."""
    home = Home(tmp_path_factory.mktemp("real"))
    generator = random.Random(7)
    told: set[str] = set()
    strays: list[str] = []
    for number in range(REAL_KILLS):
        verdicts = (number + 1) % 3  # none: before or after it says that it has started, as while its server starts
        process = home.start_brief(*REAL_SWEEP, "--json", **({} if verdicts else {"FORKED_SERVERS": ""}))
        assert process.stdout is not None
        was_started = verdicts > 0
        while verdicts and (event := json.loads(process.stdout.readline())):
            if event["event"] == "evaluated":
                told.add(event["candidate"])
                verdicts -= 1
        time.sleep(generator.uniform(0.0, LONGEST_STEP if was_started else LONGEST_START))
        told |= {e["candidate"] for e in end(process, signal.SIGKILL)[0].events if e["event"] == "evaluated"}
        seconds_until_none_is_left(home)
        strays += home.strays()
        assert not home.db.exists() or home.ask("PRAGMA integrity_check") == [("ok",)]
    last = wait(home.start_brief(*REAL_SWEEP, "--json"))
    [(evaluations,)] = home.ask("SELECT count(*) FROM evaluation")
    return RealSweep(home, frozenset(told), (*strays, *home.strays()), last, evaluations)


def test_real_sweep_goes_on_after_each_kill(real: RealSweep) -> None:
    finished = real.last.events[-1]
    assert finished["state"] == "finished"
    # Finals of one second may not tell, on a busy machine, whether the winner is faster.
    assert real.last.code == (0 if finished["beats_baseline"] else 1)
    assert real.home.ask("SELECT count(*) FROM sweep") == [(1,)]
    assert real.told <= {row[0] for row in real.home.ask("SELECT candidate_id FROM trial")}


def test_real_sweep_evaluates_nothing_twice(real: RealSweep) -> None:
    [(rows, candidates)] = real.home.ask("SELECT count(*), count(DISTINCT candidate_id) FROM evaluation")
    evaluated = [event["candidate"] for event in real.last.events if event["event"] == "evaluated"]
    assert rows == candidates
    assert real.last.events[0]["found_done"] + len(evaluated) == rows
    assert real.last.events[0]["found_done"] >= len(real.told) and not real.told & set(evaluated)


def test_no_process_is_left_of_real_sweeps(real: RealSweep) -> None:
    assert real.strays == ()


@pytest.fixture(scope="module")
def terminated(real: RealSweep) -> tuple[Ended, list[str]]:
    """A real sweep of what the first one found, terminated in its finals: how it ended, and what it left."""
    process = real.home.start_brief(*SHORT_SWEEP, "--budget", "2", "--json", FINAL_SECONDS="60")
    wait_for_event(process, "finals")
    return end(process, signal.SIGTERM)[0], real.home.strays()


def test_finished_real_sweep_is_not_evaluated_again_by_the_next_one(real: RealSweep, terminated: object) -> None:
    assert real.home.ask("SELECT count(*) FROM evaluation") == [(real.evaluations,)]
    assert real.home.ask("SELECT count(*) FROM trial WHERE taken_over") == [(2,)]


def test_termination_ends_a_real_sweep_like_an_interrupt(real: RealSweep, terminated: tuple[Ended, list[str]]) -> None:
    ended, strays = terminated
    assert (ended.code, ended.events[-1]["state"]) == (130, "interrupted")
    assert real.home.ask("SELECT state FROM sweep ORDER BY started_at DESC LIMIT 1") == [("interrupted",)]
    assert strays == []


@pytest.fixture(scope="module")
def interrupted(real: RealSweep) -> tuple[Ended, float, list[str]]:
    """A fresh real sweep of what is known, interrupted as Ctrl-C does: how it ended, after how long, what it left."""
    home = real.home
    process = home.start_brief(*REAL_SWEEP, "--fresh")
    while not home.ask("SELECT 1 FROM evaluation GROUP BY candidate_id HAVING count(*) > 1"):
        assert process.poll() is None
        time.sleep(0.1)
    ended, seconds = end(process, signal.SIGINT)
    return ended, seconds, home.strays()


@pytest.mark.exhaustive  # beside cheap judges in test_devices
def test_fresh_real_sweep_takes_nothing_over(real: RealSweep, interrupted: object) -> None:
    fresh = "SELECT id FROM sweep ORDER BY started_at DESC LIMIT 1"
    assert real.home.ask(f"SELECT sum(taken_over) FROM trial WHERE sweep_id = ({fresh})") == [(0,)]


@pytest.mark.exhaustive  # beside the sweep that is terminated, which ends in the same way
def test_interrupt_ends_a_real_sweep_soon_with_a_table_and_exit_code_130(
    interrupted: tuple[Ended, float, list[str]],
) -> None:
    ended, seconds, strays = interrupted
    assert ended.code == 130
    assert "interrupted after" in ended.out and "eager" in ended.out
    assert ended.err.endswith("interrupted; the same command goes on from here\n")
    assert strays == []
    assert seconds < 20  # two seconds where the machine is not busy
