"""From settings to a pool."""

import hashlib
import logging
from collections.abc import Sequence

from evenodds.questions.config import DataConfig
from evenodds.questions.gathering import pool_of_rows
from evenodds.questions.generators import GENERATORS
from evenodds.questions.pool import QuestionPool
from evenodds.questions.sources import stored_rows

logger = logging.getLogger(__name__)


def load_pool(config: DataConfig) -> QuestionPool:
    """Read, check and number the questions of `config.source`.

    Raises:
        DataError: the source cannot be read, or its rows cannot be used as questions.
        ConfigError: a generated task is unknown or set up wrongly.
    """
    generate = GENERATORS.get(config.source)
    if generate is None:
        pool = pool_of_rows(stored_rows(config), config)
    else:
        columns = {"question_column": "question", "answer_column": "answer", "shape": "columns"}
        pool = pool_of_rows(generate(config), config.replace(**columns), answers_may_lack=True)
    if config.limit is not None and config.limit < len(pool):
        pool = pool.take(drawn_rows(pool.ids, config.limit, config.seed))
    logger.info("%d questions from %s", len(pool), config.source)
    return pool


def drawn_rows(ids: Sequence[str], count: int, seed: int) -> list[int]:
    """`count` random rows, in order; a question's luck depends on its id and the seed alone."""

    def luck(row: int) -> bytes:
        return hashlib.blake2b(f"{seed} {ids[row]}".encode(), digest_size=16).digest()

    return sorted(sorted(range(len(ids)), key=luck)[:count])
