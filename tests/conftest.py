"""Every test run checks the shapes in the signatures, and keeps caches to itself."""

import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["EVENODDS_CACHE"] = tempfile.mkdtemp(prefix="evenodds-test-cache-")

from jaxtyping import install_import_hook

install_import_hook("evenodds", "typecheck.check")
