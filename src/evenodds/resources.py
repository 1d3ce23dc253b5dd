"""Files that lie in installed packages, named `package:NAME/FILE`."""

import importlib.util
from pathlib import Path

from evenodds.errors import ConfigError

PACKAGE = "package:"


def resolved_path(spec: str) -> Path:
    """The file of a path, or of `package:NAME/FILE`.

    Raises:
        ConfigError: the package is not installed or holds no such file.
    """
    if not spec.startswith(PACKAGE):
        return Path(spec).expanduser()
    name, _, inner = spec.removeprefix(PACKAGE).partition("/")
    found = importlib.util.find_spec(name) if name.isidentifier() else None
    if found is None or found.origin is None:
        raise ConfigError(
            f"{spec!r} is in a package that is not installed",
            got=name,
            fix=f"pip install {name.replace('_', '-')}",
        )
    path = Path(found.origin).parent / inner
    if not path.exists():
        there = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        raise ConfigError(
            f"the package {name} holds no file {inner!r}", got=", ".join(there) or "no such folder"
        )
    return path
