"""Which reward scores the completions."""

from dataclasses import dataclass
from typing import ClassVar

from evenodds.config import Settings, setting, unknown_key
from evenodds.errors import ConfigError

BUILT_IN = ("math", "exact", "choice", "reasoning_gym")


@dataclass(frozen=True, kw_only=True)
class RewardConfig(Settings):
    """The reward of a run: one that comes with evenodds, or a function of the user's own."""

    section: ClassVar[str] = "reward"

    kind: str = setting(
        "math", f"one of {', '.join(BUILT_IN)}, or your own function as `module:function`"
    )
    range: tuple[float, float] = setting((0.0, 1.0), "lowest and highest reward that can occur")

    def check(self) -> None:
        """Refuse an unknown kind, an empty range, and a range that a built-in does not have."""
        if self.kind not in BUILT_IN and ":" not in self.kind:
            raise unknown_key(self.kind, [*BUILT_IN, "module:function"], kind="reward.kind")
        low, high = self.range
        if not low < high:
            raise ConfigError(
                "reward.range is empty",
                got=[low, high],
                expected="[lowest, highest] with lowest < highest",
            )
        if self.kind in BUILT_IN and self.range != (0.0, 1.0):
            raise ConfigError(
                f"the {self.kind} reward has another range than reward.range says",
                got=[low, high],
                expected="[0.0, 1.0]",
                fix="leave reward.range out; it is for a function of your own",
            )
