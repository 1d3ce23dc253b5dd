"""Packages that only some sources need, imported when they are used."""

import importlib
from typing import Any

from evenodds.errors import ConfigError


def module_of(name: str, package: str) -> Any:
    """The module `name`.

    Raises:
        ConfigError: the `package` that it comes with is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"this data.source needs the package {package}", fix=f"pip install {package}"
        ) from error
