"""The loop of `plugrad train`: iterate, write metrics, keep the best checkpoint, stop at a goal or a signal."""

import logging
import math
import os
import select
import shlex
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from signal import Signals
from time import perf_counter
from types import FrameType, TracebackType
from typing import Any, Literal

from rich.console import Console

from plugrad.algorithm import Algorithm
from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli.options import toml_literal
from plugrad.cli.progress import (
    EPISODES,
    EVALUATED_RETURN,
    ITERATION,
    SECONDS,
    TIMESTEPS,
    WINDOW,
    Goals,
    Progress,
    over_evaluations,
    return_words,
    scalars,
)
from plugrad.cli.run_directory import RunDirectory
from plugrad.cli.system import system
from plugrad.cli.trust import go_on
from plugrad.errors import CheckpointError
from plugrad.hooks.manager import HookManager
from plugrad.sampling.faults import can_be_truncated, wrappers_with_truncation

# --- signals ---
#
# Ctrl-C, SIGTERM and SIGHUP: the first ends training after the iteration, with a checkpoint; the second at once.
#
# Python handles a signal between two of its instructions, and one instruction may be a compilation of minutes. So a
# thread waits for signals as well: they reach it through a pipe, whatever the main thread does.

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 8.0
"""Seconds after a signal in which the iteration must end; else the process exits without it. The last checkpoint is
on disk."""


class StopSignals:
    """A context in which the first signal asks the process to end, and the second ends it at once.

    Attributes:
        received: the signal that asked to stop, or None.
        saved: `{run directory: what is saved of it and how to go on}`, which is said where the process ends at once.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.saved: dict[str, str] = {}
        self._iteration_is_done = self._ended_well = False
        self._handlers_before: dict[int, Any] = {}
        self._pipe: int | None = None
        self._wakeup_before = -1

    @property
    def exit_code(self) -> int:
        """128 + the signal's number: 130 for Ctrl-C, 143 for SIGTERM; 0 without a signal."""
        return 0 if self.received is None else 128 + self.received

    def __enter__(self) -> "StopSignals":
        # Only the main thread may set handlers; elsewhere the process's owner decides.
        if threading.current_thread() is threading.main_thread():
            self._start_thread()
            self._handlers_before = {
                number: signal.signal(number, self._receive)
                for number in SIGNALS
                if signal.getsignal(number) != signal.SIG_IGN  # as nohup asks
            }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.iteration_is_done()
        self._ended_well = kind is None
        if (
            self.received is None
        ):  # else the process is about to end, and a second signal still ends it at once
            self._stop_thread()

    def iteration_is_done(self) -> None:
        """Lift the deadline: what comes now is short and must be finished."""
        self._iteration_is_done = True

    def skip_teardown(self) -> None:
        """Exit at once if a signal asked to and the context ended without an error. Register it first with `atexit`.

        Everything is saved and closed by then, and an interpreter with torch or TensorFlow in it takes 1 to 2 seconds
        more to end (measured), many times that on a busy machine.
        """
        if self._ended_well and self.received is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            _exit_now(self.exit_code)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number

    def _start_thread(self) -> None:
        heard, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        self._wakeup_before = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._close_in_child)
        threading.Thread(
            target=self._wait_for_signals, args=(heard,), name="plugrad-signals", daemon=True
        ).start()

    def _stop_thread(self) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        if self._pipe is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._pipe)  # the thread reads its end, and ends
            self._pipe = None

    def _close_in_child(self) -> None:
        # Ctrl-C reaches the children that an environment forked too: here they would be taken for a second one.
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)

    def _wait_for_signals(self, pipe: int) -> None:
        with open(pipe, "rb", buffering=0) as source:
            first = _next(source, None)
            if first is None:
                return
            _print("stopping after this iteration; once more leaves at once")
            second = _next(source, GRACE_S)
            if second is None:
                second = _next(source, None) if self._iteration_is_done else first
            if second is not None:
                _print("\n".join(["left at once", *list(self.saved.values())]))
                _exit_now(128 + second)


def _next(source: RawIOBase, patience: float | None) -> int | None:
    """The next signal's number; None after `patience` seconds without one, or when the pipe is closed."""
    while select.select([source], [], [], patience)[0]:
        byte = source.read(1)
        if not byte:
            return None
        if byte[0] in SIGNALS:
            return byte[0]
    return None


def _exit_now(code: int) -> None:
    # No cleanup on purpose: checkpoints are written all or nothing, and cleanup is what may hang.
    os._exit(code)


def _print(text: str) -> None:
    # The main thread may be in the middle of a print: the descriptor has no buffer to mix up.
    with suppress(OSError):  # the terminal may be gone
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{text}\n".encode())


# --- the loop of `plugrad train`: iterate, write metrics, keep the best checkpoint, stop at a goal or a signal ---

log = logging.getLogger("plugrad")

SAVE_EVERY_S = 10.0
_BY_SIGNAL = "stopped by "
_NEW_EPISODES = "env_runners/num_episodes"
_RATE_OVER = 20
"""Iterations over which steps per second are taken."""


BestIsOf = Literal["evaluation", "training", "few"]
Show = Callable[[Progress], None]
"""Shows the progress of a run after one iteration."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        progress: after the last iteration; None if there was none.
        reason: the goal or signal that ended it, in words.
        goal_reached: whether the reward goal was reached.
        best_return: the best mean return so far, those before a resume included, or None.
        best_is_of: what it is a mean of: "evaluation", "training", or "few", which is training with fewer than
            `WINDOW` episodes so far.
    """

    progress: Progress | None
    reason: str
    goal_reached: bool
    best_return: float | None
    best_is_of: BestIsOf


@dataclass(kw_only=True)
class TrainLoop:
    """Trains an algorithm until a goal or a signal.

    Args:
        algorithm: new, or restored from the last checkpoint of the run directory.
        run: where metrics and checkpoints go.
        goals: when to stop.
        show: shows the progress.
        signals: Ctrl-C, SIGTERM and SIGHUP, which ask to stop.
        listeners: their `iteration_ended` gets each row of metrics; the algorithm's own listeners get its results.
        save_every: iterations between two checkpoints; None: a checkpoint every `SAVE_EVERY_S` seconds.
        new_episodes: the algorithm was restored and began new episodes: it is saved before the first iteration, so that
            the next resume begins others.

    Attributes:
        output_is_gone: nobody reads what `show` prints any more.
    """

    algorithm: Algorithm
    run: RunDirectory
    goals: Goals
    show: Show
    signals: StopSignals
    listeners: HookManager
    save_every: int | None = None
    new_episodes: bool = False

    def __post_init__(self) -> None:
        self.output_is_gone = False
        self._refused: set[str] = set()
        self._config = self.algorithm.config
        self._unwritten_since: float | None = None
        self._history = self.run.metrics.history
        last = self._history.last
        self._resumed = None if last is None else Progress.of(last)
        config = self.algorithm.config
        # Offline runs have their evaluations in place of training episodes: see `over_evaluations`.
        self._by_evaluation = config.evaluation_interval is not None and self.algorithm.env_runner is not None
        self._best = self._history.best(by_evaluation=self._by_evaluation)
        self._episodes: float = self._resumed.episodes if self._resumed else 0
        before = (self._resumed.seconds, self._resumed.timesteps) if self._resumed else (0.0, 0)
        self._points: deque[tuple[float, float]] = deque([before], maxlen=_RATE_OVER)
        self._before = before[0]
        self._started = self._saved = perf_counter()
        self._saved_iteration = self.algorithm.iteration if self._resumed else None

    def run_until_done(self) -> Outcome:
        """Train until a goal or a signal. Afterwards `checkpoints/last` is that of the last iteration.

        Raises:
            Exception: what an iteration raised. What was trained until then is saved, and a note says how to go on.
        """
        progress = self._resumed
        if progress is None or self.new_episodes:
            self._save()  # from here on there is always a checkpoint to resume from
        try:
            while (reason := self._reason_to_stop(progress)) is None:
                progress = self._iterate()
                if self._is_time_to_save():
                    self._try_to_write(self._save, "checkpoint")
        except KeyboardInterrupt:  # only where no signals are handled, such as in a thread
            raise
        except BaseException as error:
            error.add_note(self._saved_after(error))
            raise
        self.signals.iteration_is_done()
        if self._saved_iteration != self.algorithm.iteration:
            self._save()
        self._try_to_write(self.run.metrics.complete, "metrics")
        return self._outcome(progress, reason)

    def _saved_after(self, error: BaseException) -> str:
        """Save what the iterations before an error have trained; says what is saved, and how to go on."""
        self.signals.iteration_is_done()
        where = f"run {self.run.path}"
        try:
            self.run.metrics.complete()
            self._save()
            saved = f"{where}: iteration {self.algorithm.iteration} is saved"
        except Exception as another:
            saved = (
                f"{where}: iteration {self.algorithm.iteration} cannot be saved ({type(another).__name__}: "
                f"{' '.join(str(another).split())}), iteration {self._saved_iteration} is"
            )
        return f"{saved}; go on: {self._commands_after(error)}"

    def _commands_after(self, error: BaseException) -> str:
        config = self.algorithm.config
        command = go_on(config, self.run.path)
        if self.algorithm.env_runner is None:
            return command
        command = f"{command} --new-episodes"
        if not can_be_truncated(error, config):
            return command
        wrappers = toml_literal(wrappers_with_truncation(config))
        lasting = f"{command} {shlex.quote(f'--env_runners.env_wrappers={wrappers}')}"
        return f"{command}; if it fails now and then, TruncateOnFault ends such episodes alone: {lasting}"

    def _iterate(self) -> Progress:
        row = scalars(self.algorithm.train())
        if self.algorithm.env_runner is None:
            row |= over_evaluations(row, self._history.evaluations)
        session = perf_counter() - self._started
        row |= {ITERATION: self.algorithm.iteration, SECONDS: self._before + session}
        self._episodes = row.setdefault(EPISODES, self._episodes + row.get(_NEW_EPISODES, 0))
        self._record(row)
        self.listeners.call_hook("iteration_ended", algorithm=self.algorithm, results=row)
        progress = Progress.of(
            row,
            session_seconds=session,
            steps_per_second=self._rate(row),
            evaluation_mean=self._history.evaluated if self._by_evaluation else None,
            best_mean=self._history.best(by_evaluation=self._by_evaluation),
        )
        self._keep_best(row.get(EVALUATED_RETURN) if self._by_evaluation else progress.full_window_mean)
        try:
            self.show(progress)
        except OSError:  # a closed pipe, a terminal that is gone
            self.output_is_gone = True
        return progress

    def _record(self, row: dict[str, float]) -> None:
        """Write the metrics, or keep them until the disk takes them again."""
        self.run.metrics.add(row)
        if self._unwritten_since is None or perf_counter() - self._unwritten_since >= SAVE_EVERY_S:
            done = self._try_to_write(self.run.metrics.flush, "metrics")
            self._unwritten_since = None if done else perf_counter()

    def _rate(self, row: dict[str, float]) -> float:
        self._points.append((row[SECONDS], row[TIMESTEPS]))
        (then, steps_then), (now, steps_now) = self._points[0], self._points[-1]
        return (steps_now - steps_then) / max(now - then, 1e-9)

    def _keep_best(self, value: float | None) -> None:
        if value is None or math.isnan(value) or (self._best is not None and value <= self._best):
            return
        if self._try_to_write(lambda: self.algorithm.save_to_path(str(self.run.best), keep=1), "best"):
            self._best = value

    def _reason_to_stop(self, progress: Progress | None) -> str | None:
        if self.signals.received is not None:
            name = Signals(self.signals.received).name
            return f"{_BY_SIGNAL}{'Ctrl-C' if name == 'SIGINT' else name}"
        if self.output_is_gone:
            return "stopped: nobody reads the output any more"
        if self.algorithm.stop_reason is not None:
            return self.algorithm.stop_reason
        return None if progress is None else self.goals.reached(progress)

    def _is_time_to_save(self) -> bool:
        if self.save_every is not None:
            return self.algorithm.iteration % self.save_every == 0
        return perf_counter() - self._saved >= SAVE_EVERY_S

    def _save(self) -> None:
        if self.algorithm.config is not self._config:  # a listener added or removed modules
            self._config = self.algorithm.config
            self.run.write_config(self._config)
        self.algorithm.save_to_path(str(self.run.last))
        self._saved, self._saved_iteration = perf_counter(), self.algorithm.iteration
        words = _saved_words(self._saved_iteration, self.run.path, self._config)
        self.signals.saved[str(self.run.path)] = words

    def _try_to_write(self, write: Callable[[], object], what: str) -> bool:
        """Write something; False if the disk refuses.

        Training goes on then: the disk may have room later, and the checkpoint before is still there. The refusal is
        logged once, until the same write succeeds again.
        """
        try:
            write()
        except CheckpointError as error:
            if what not in self._refused:
                log.warning("%s; training goes on", error)
            self._refused.add(what)
            self._saved = perf_counter() if what == "checkpoint" else self._saved
            return False
        self._refused.discard(what)
        return True

    def _outcome(self, progress: Progress | None, reason: str) -> Outcome:
        history = self._history
        best: float | None = history.best_evaluated if self._by_evaluation else None
        is_of: BestIsOf = "evaluation"
        if best is None:
            best, is_of = history.best_trained, "training"
        if best is None:
            best, is_of = history.best_of_few, "few"
        return Outcome(
            progress=progress,
            reason=reason,
            goal_reached=progress is not None and self.goals.has_reward(progress),
            best_return=best,
            best_is_of=is_of,
        )


# --- the outcome of a run: `summary.json`, and the last lines that `plugrad train` prints ---

_OF = {"evaluation": " in evaluation", "training": "", "few": f" over fewer than {WINDOW} episodes"}


def _saved_words(iteration: int, path: Path, config: AlgorithmConfig) -> str:
    return f"iteration {iteration:,} is saved; go on: {go_on(config, path)}"


def env_name(config: AlgorithmConfig) -> str:
    """The environment of a config, in words."""
    return "recorded episodes" if config.env is None else str(config.env)


def summarize(outcome: Outcome, config: AlgorithmConfig, algorithm: str, goals: Goals) -> dict[str, Any]:
    """The content of `summary.json`.

    Args:
        outcome: of the run.
        config: its settings.
        algorithm: its algorithm's short name.
        goals: its goals.

    Returns:
        JSON data; `seconds` is training time, `timesteps` are environment steps, both counted over resumes.
    """
    progress = outcome.progress
    return {
        "algorithm": algorithm,
        "env": env_name(config),
        "backend": config.backend,
        "seed": config.seed,
        "ended": outcome.reason,
        "reward_goal": goals.reward,
        "reward_goal_reached": outcome.goal_reached,
        "best_return_mean": outcome.best_return,
        "best_return_is_of": outcome.best_is_of,
        "return_mean": None if progress is None else progress.return_mean,
        "timesteps": 0 if progress is None else progress.timesteps,
        "iterations": 0 if progress is None else progress.iteration,
        "seconds": 0.0 if progress is None else round(progress.seconds, 3),
        "system": system(config.backend),
    }


def print_summary(
    console: Console, summary: dict[str, Any], path: Path, config: AlgorithmConfig, *, quiet: bool
) -> None:
    """Print how the run ended; the last two lines are its path and its best mean return.

    Args:
        console: where to.
        summary: see `summarize`.
        path: the run directory.
        config: the run's settings.
        quiet: print the last two lines only.
    """
    lines = []
    if not quiet:
        what = f"{summary['algorithm']} on {summary['env']} with {summary['backend']}"
        lines += [what, summary["ended"], _effort(summary)]
        if summary["ended"].startswith(_BY_SIGNAL):
            lines.append(_saved_words(summary["iterations"], path, config))
    best = summary["best_return_mean"]
    lines.append(f"run: {path}")
    words = "none, no episode has ended" if best is None else return_words(best)
    lines.append(f"best mean return: {words}{'' if best is None else _OF[summary['best_return_is_of']]}")
    for line in lines:
        # Paths are to be copied: no wrapping, no colours, no markup.
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _effort(summary: dict[str, Any]) -> str:
    seconds, timesteps = summary["seconds"], summary["timesteps"]
    rate = timesteps / seconds if seconds else 0.0
    iterations = summary["iterations"]
    return f"{timesteps:,} timesteps in {seconds:.1f} s ({rate:,.0f} per second), {iterations:,} iterations"
