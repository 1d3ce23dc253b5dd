"""Stage 1. Question pools: from files, folders, hubs and generators, with stable ids.

A question's id is the hash of what the policy is asked, so it is the same in every run, file type
and row order; difficulty and stored rollouts can be looked up by it. Everything that is wrong with
a pool is found here, before any model is loaded.

In the order of the data: `config`; `files`, `generators` and `sources` give rows; `shapes` and
`cells` read them; `gathering` makes a `pool` of `prompts`; `loading` does all of it; `checks` look
at the result.
"""

from evenodds.questions.checks import check_prompt_lengths
from evenodds.questions.config import DataConfig
from evenodds.questions.files import READERS
from evenodds.questions.gathering import RESERVED, pool_of_rows
from evenodds.questions.generators import GENERATORS
from evenodds.questions.loading import drawn_rows, load_pool
from evenodds.questions.pool import QuestionPool
from evenodds.questions.prompts import Prompt, prompt_text, question_id
from evenodds.questions.shapes import USUAL_NAMES, Row
from evenodds.questions.sources import stored_rows

__all__ = [
    "GENERATORS",
    "READERS",
    "RESERVED",
    "USUAL_NAMES",
    "DataConfig",
    "Prompt",
    "QuestionPool",
    "Row",
    "check_prompt_lengths",
    "drawn_rows",
    "load_pool",
    "pool_of_rows",
    "prompt_text",
    "question_id",
    "stored_rows",
]
