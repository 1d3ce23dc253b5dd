"""Question files for the recipes: read from the hub or from local files, checked, written.

In the order of the data: `catalogue` says what each source is, `reading` gives its rows,
`building` filters, checks and draws them, and writes the file.
"""

from evenodds.preparation.building import PreparedPool, prepare_pool
from evenodds.preparation.catalogue import SOURCES, Source, source_of_file, source_of_name

__all__ = [
    "SOURCES",
    "PreparedPool",
    "Source",
    "prepare_pool",
    "source_of_file",
    "source_of_name",
]
