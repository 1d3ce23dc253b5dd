"""Every test run checks the shapes in the signatures, and keeps caches to itself."""

import importlib.util
import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # tests run side by side; small work gains nothing from threads
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["EVENODDS_CACHE"] = tempfile.mkdtemp(prefix="evenodds-test-cache-")

from jaxtyping import install_import_hook

# verl has an environment of its own: `make test-verl`.
collect_ignore = [] if importlib.util.find_spec("verl") else ["on_verl"]

# Settings check themselves, and their tests pass wrong types on purpose.
SHAPED = [
    "difficulty",
    "embedding_file",
    "embeddings",
    "evaluation",
    "labels",
    "loop",
    "loss",
    "recorder",
    "references",
    "replay",
    "replay_share",
    "sampling",
    "scoring",
    "selection",
    "state",
    "study",
    "trl",
    "types",
]
install_import_hook([f"evenodds.{name}" for name in SHAPED], "typecheck.check")
