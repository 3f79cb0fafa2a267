"""When a training run is done."""

from dataclasses import dataclass

from plugrad.cli.progress import WINDOW, Progress

DEFAULT_TIMESTEPS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Goals:
    """The first that is reached ends the run.

    Attributes:
        reward: mean return over the last `WINDOW` episodes; None: no such goal.
        timesteps: environment steps of the run's whole life.
        seconds: of this invocation; None: no limit.
    """

    reward: float | None
    timesteps: int
    seconds: float | None = None

    def reached(self, progress: Progress) -> str | None:
        """A sentence part that says which goal is reached, or None."""
        if self.has_reward(progress):
            mean = f"mean return {progress.return_mean:.1f} over the last {WINDOW} episodes"
            return f"reached {self.reward:g}: {mean}"
        if progress.timesteps >= self.timesteps:
            return f"stopped at {progress.timesteps:,} timesteps{self._missed()}"
        if self.seconds is not None and progress.session_seconds >= self.seconds:
            return f"stopped after {self.seconds:g} seconds{self._missed()}"
        return None

    def has_reward(self, progress: Progress) -> bool:
        """Whether the reward goal is reached."""
        return bool(
            self.reward is not None
            and progress.window_is_full
            and progress.return_mean is not None
            and progress.return_mean >= self.reward
        )

    def fraction(self, progress: Progress, first_return: float | None) -> float:
        """How much of the way is done, 0 to 1, by the goal that is nearest.

        Args:
            progress: now.
            first_return: the first mean return that was seen, the start of the way to the reward.
        """
        ways = [progress.timesteps / self.timesteps]
        if self.seconds is not None:
            ways.append(progress.session_seconds / self.seconds)
        if self.reward is not None and progress.return_mean is not None and first_return is not None:
            distance = self.reward - first_return
            ways.append((progress.return_mean - first_return) / distance if distance > 0 else 1.0)
        return min(1.0, max(0.0, *ways))

    def _missed(self) -> str:
        return "" if self.reward is None else f", without reaching {self.reward:g}"
