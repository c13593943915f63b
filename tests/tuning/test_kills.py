"""Nothing is lost: sweeps that are killed at random moments, and go on."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import killed_sweeps
import pytest
from running import ROOT, SHORT_SWEEP, Ended, Home, end, seconds_until_none_is_left, wait

KILLS = 100


@dataclass(frozen=True)
class Killed:
    """What became of a sweep that was killed many times: candidates begun and told of, in that order."""

    home: Home
    begun: list[str]
    told: list[str]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A sweep with cheap judges that was killed a hundred times, and then ended."""
    home = Home(tmp_path_factory.mktemp("killed"))
    script = str(Path(__file__).parents[1] / "killed_sweeps.py")
    ended = wait(home.popen([sys.executable, script, str(home.folder), str(KILLS)], PYTHONPATH=str(ROOT)))
    assert (ended.code, ended.out) == (0, "0\n"), ended.err
    begun, told = ((home.folder / name).read_text().split() for name in ("begun", "told"))
    return Killed(home, begun, told)


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


# Real sweeps: compilers, workers, and all that they start -------------------------------------------------------

#: More of them, for an hour to spare: ``KGEN_KILLS=100 pytest tests/test_kills.py -k real``.
REAL_KILLS = int(os.environ.get("KGEN_KILLS", 3))
REAL_SWEEP = (*SHORT_SWEEP, "--budget", str(3 * REAL_KILLS), "--time", "20", "--json")


@pytest.fixture(scope="module")
def really_killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, set[str], Ended]:
    """A sweep that was killed now while it started, now at some moment after a verdict, and then ended: where it ran,
    what it had told of when it was killed, and its end."""
    home = Home(tmp_path_factory.mktemp("really_killed"))
    generator = random.Random(7)
    told: set[str] = set()
    for number in range(REAL_KILLS):
        process = home.start(*REAL_SWEEP)
        assert process.stdout is not None
        verdicts = number % 3  # none: before or after it says that it has started
        while verdicts and (event := json.loads(process.stdout.readline())):
            if event["event"] == "evaluated":
                told.add(event["candidate"])
                verdicts -= 1
        time.sleep(generator.uniform(0.0, 2.0 if number % 3 else 8.0))
        told |= {e["candidate"] for e in end(process, signal.SIGKILL)[0].events if e["event"] == "evaluated"}
        seconds_until_none_is_left(home)
        assert not home.db.exists() or home.ask("PRAGMA integrity_check") == [("ok",)]
    return home, told, home.kgen(*REAL_SWEEP)


def test_real_sweep_goes_on_after_each_kill(really_killed: tuple[Home, set[str], Ended]) -> None:
    home, told, ended = really_killed
    assert (ended.code, ended.events[-1]["state"]) == (0, "finished")
    assert home.ask("SELECT count(*) FROM sweep") == [(1,)]
    assert told <= {row[0] for row in home.ask("SELECT candidate_id FROM trial")}


def test_real_sweep_evaluates_nothing_twice(really_killed: tuple[Home, set[str], Ended]) -> None:
    home, _, ended = really_killed
    [(rows, candidates)] = home.ask("SELECT count(*), count(DISTINCT candidate_id) FROM evaluation")
    assert rows == candidates
    assert ended.events[0]["found_done"] + sum(e["event"] == "evaluated" for e in ended.events) == rows


def test_no_process_is_left_of_real_sweeps(really_killed: tuple[Home, set[str], Ended]) -> None:
    assert really_killed[0].strays() == []
