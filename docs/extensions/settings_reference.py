"""The reference of all settings, made from the records that check them, whenever it is built.

A page says `<!-- settings: run -->` where the sections of a config belong, `<!-- presets -->` for
the presets, and `<!-- settings: study -->` for those of `fit`, `evaluate` and `simulate`.
"""

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Iterable
from typing import Any

from sphinx.application import Sphinx

from evenodds.config import PRESETS, EfficiencyConfig, Settings
from evenodds.run_config import SECTIONS
from evenodds.study_config import FitConfig, ScoringConfig, SimulationConfig, SplitConfig

STUDY = (FitConfig, SplitConfig, ScoringConfig, SimulationConfig)
NAMES = {str: "text", bool: "true or false", int: "whole number", float: "number"}


def run_settings() -> str:
    """Every section of a config file, as Markdown."""
    return "\n\n".join(section_text(f"`[{name}]`", settings) for name, settings in SECTIONS.items())


def study_settings() -> str:
    """The settings of the commands that work on labels, as Markdown."""
    return "\n\n".join(section_text(f"`{kind.__name__}`", kind) for kind in STUDY)


def presets() -> str:
    """What each preset sets, as Markdown."""
    lines = ["| preset | sets |", "|---|---|"]
    for name, values in PRESETS.items():
        changed = ", ".join(f"`{key} = {spell(value)}`" for key, value in values.items())
        lines.append(f"| `{name}` | {changed or 'nothing: it is the default'} |")
    return "\n".join(lines)


def section_text(title: str, settings: type[Settings]) -> str:
    """A heading, what the section is for, and a row a setting."""
    about = inspect.cleandoc(settings.__doc__ or "")
    hints = typing.get_type_hints(settings)
    rows = [
        "| setting | type | default | range | unit | meaning |",
        "|---|---|---|---|---|---|",
        *(row(field, hints[field.name]) for field in dataclasses.fields(settings)),
    ]
    table = "\n".join(rows)
    return f"## {title}\n\n{about}\n\n{table}"


def row(field: "dataclasses.Field[Any]", hint: Any) -> str:
    """A setting: name, type, default, range, unit and meaning."""
    about = field.metadata
    default = default_text(field.default)
    cells = (
        f"`{field.name}`",
        type_text(hint),
        default,
        range_text(about),
        about["unit"] or "",
        cell_text(about["help"]),
    )
    return f"| {' | '.join(cells)} |"


def default_text(value: Any) -> str:
    """A default, or that there is none."""
    if value is dataclasses.MISSING:
        return "required"
    return "none" if value is None else f"`{spell(value)}`"


def cell_text(text: str) -> str:
    """Text that a table cell can hold; bars and dollars mean themselves."""
    return text.replace("|", "\\|").replace("$", "\\$").replace("*", "\\*")


def spell(value: Any) -> str:
    """A value as TOML spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(spell, value))}]"
    if isinstance(value, float) and 0 < abs(value) < 1e-2:
        return f"{value:g}".replace("e-0", "e-")
    return str(value)


def type_text(hint: Any) -> str:
    """A type in words, and `or none` where it may be left unset."""
    options = [option for option in options_of(hint) if option is not types.NoneType]
    text = " or ".join(kind_text(option) for option in options)
    return f"{text}, or none" if len(options) < len(options_of(hint)) else text


def options_of(hint: Any) -> tuple[Any, ...]:
    """The members of a union; a type that is none is its own only member."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def kind_text(kind: Any) -> str:
    """One type that is no union."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return "one of " + ", ".join(f"`{value}`" for value in inner)
    if origin is tuple and inner[-1] is Ellipsis:
        return f"list of {NAMES[inner[0]]}"
    if origin is tuple:
        return f"{len(inner)} {NAMES[inner[0]]}s"
    if origin is dict:
        return "table"
    return NAMES[kind]


def range_text(about: typing.Mapping[str, Any]) -> str:
    """The allowed range, in words."""
    low, high, above = about["low"], about["high"], about["above"]
    parts: Iterable[str] = (
        f"above {above:g}" if above is not None else "",
        f"at least {bound(low)}" if low is not None else "",
        f"at most {bound(high)}" if high is not None else "",
    )
    return ", ".join(part for part in parts if part)


def bound(value: float) -> str:
    """A bound without needless digits."""
    exponent = math.log2(value + 1) if value > 1e6 else 0.0
    return f"2^{exponent:.0f} - 1" if exponent and exponent.is_integer() else f"{value:g}"


def fill(app: Sphinx, name: str, source: list[str]) -> None:
    """Put the references where a page asks for them."""
    for mark, make in (
        ("<!-- settings: run -->", run_settings),
        ("<!-- settings: study -->", study_settings),
        ("<!-- presets -->", presets),
    ):
        if mark in source[0]:
            source[0] = source[0].replace(mark, make())


def setup(app: Sphinx) -> dict[str, bool]:
    """Fill pages as they are read."""
    assert EfficiencyConfig.section in SECTIONS
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
