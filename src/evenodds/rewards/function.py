"""Rewards by a user's own function, named as `module:function`."""

import contextlib
import difflib
import functools
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from evenodds.errors import ConfigError, RewardError, some
from evenodds.rewards.reward import Reward

FORM = "module:function, a file `module.py` in the current folder or an installed module"


class FunctionReward(Reward):
    """Calls the function with those of TRL's arguments that it takes, and checks what it returns.

    Args:
        function: `function(prompts, completions, **columns) -> list[float]`.
        name: For metrics and error messages.
        reward_range: Lowest and highest reward that can occur.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, reward_range: tuple[float, float]
    ) -> None:
        super().__init__(name, reward_range)
        self.function = function

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float]:
        """Score a batch in TRL's form; errors as in `checked_rewards`."""
        arguments = self._arguments(prompts, completions, columns)
        with _said(self.__name__):
            rewards = self.function(**arguments)
        return self.checked(rewards, completions, columns)

    def _arguments(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]
    ) -> dict[str, Any]:
        return accepted_arguments(
            self.function,
            {"prompts": prompts, "completions": completions, **columns},
            self.__name__,
        )


class AsyncFunctionReward(FunctionReward):
    """The same for a function that is awaited."""

    async def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float]:
        """Score a batch in TRL's form; errors as in `checked_rewards`."""
        arguments = self._arguments(prompts, completions, columns)
        with _said(self.__name__):
            rewards = await self.function(**arguments)
        return self.checked(rewards, completions, columns)


@contextlib.contextmanager
def _said(name: str) -> Iterator[None]:
    """Turn whatever a user's function raises into an error that says where."""
    try:
        yield
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise RewardError(
            f"the reward function {name} fails",
            got=f"{type(error).__name__}: {error}, in {place.filename}:{place.lineno}",
            expected="a number for every completion",
        ) from error


def load_function(kind: str) -> Callable[..., Any]:
    """Import `module:function`; the current folder is searched first.

    Raises:
        ConfigError: there is no such module or function, or it cannot be called.
    """
    module_name, _, path = kind.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")]):
        raise ConfigError("reward.kind names no function", got=kind, expected=FORM)
    found: Any = _imported(module_name, kind)
    for name in path.split("."):
        if not hasattr(found, name):
            raise _no_attribute(found, name, kind)
        found = getattr(found, name)
    if not callable(found):
        raise ConfigError(
            f"reward.kind = {kind!r} is not a function", got=repr(found)[:200], expected=FORM
        )
    return found


def is_async(function: Callable[..., Any]) -> bool:
    """Whether what the function returns must be awaited."""
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004  (an object's own method)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def accepted_arguments(
    function: Callable[..., Any], given: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """Those of `given` that the function takes: all of them where it has `**columns`.

    Raises:
        RewardError: it needs one that there is not.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a function written in C may not tell
        return dict(given)
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    missing = [parameter for parameter in needed if parameter not in given]
    if missing:
        near = difflib.get_close_matches(missing[0], list(given), n=1)
        raise RewardError(
            f"{name} takes an argument {missing[0]!r}, but the questions have no such column",
            got=f"the columns {some(sorted(given), 20)}",
            fix=f"did you mean {near[0]!r}?" if near else "rename the argument to a column",
        )
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(given)
    return {
        parameter.name: given[parameter.name] for parameter in parameters if parameter.name in given
    }


def _imported(name: str, kind: str) -> ModuleType:
    try:
        with _current_folder_first():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(kind, error) from error  # the module is there, one it needs is not
        raise ConfigError(
            f"reward.kind = {kind!r}: there is no module {error.name!r}",
            got=f"looked in {os.getcwd()} and in the installed packages",
            expected=FORM,
        ) from error
    except Exception as error:
        raise _broken(kind, error) from error


def _broken(kind: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"reward.kind = {kind!r}: importing the module fails",
        got=f"{type(error).__name__}: {error}",
        expected="a module that can be imported",
    )


def _no_attribute(owner: Any, name: str, kind: str) -> ConfigError:
    names = [other for other in vars(owner) if not other.startswith("_")]
    near = difflib.get_close_matches(name, names, n=1)
    return ConfigError(
        f"reward.kind = {kind!r}: there is no {name!r} in {owner.__name__}",
        got=f"{getattr(owner, '__file__', owner)} has {some(names, 10) or 'nothing'}",
        fix=f"did you mean {near[0]!r}?" if near else None,
    )


@contextlib.contextmanager
def _current_folder_first() -> Iterator[None]:
    """Import like `python -m` does; afterwards the folder is searched last, if at all before."""
    folder = os.getcwd()
    if folder in sys.path or "" in sys.path:
        yield
        return
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        sys.path.append(folder)
