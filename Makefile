PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
NEOVIM := $(CURDIR)/.cache/neovim
WORKBENCH := $(CURDIR)/.cache/vscode

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test slow e2e e2e-nvim e2e-vscode lint types fix bench soak pictures gpu-train gpu-check vscode ci

help: ## show these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv and install Midspan with its test tools (minutes once, then instant)

demo: $(STAMP) ## fill a gap of a real file through the language server; prints latency and steps
	@$(BIN)/midspan demo

test: $(STAMP) ## run the ordinary tests, in two processes
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow and not e2e"

# Fixtures of the slow tests take long: each file stays in one process.
slow: $(STAMP) ## run the slow tests, in two processes
	$(BIN)/pytest -n 2 --dist loadfile -m "slow and not e2e"

e2e: e2e-nvim e2e-vscode ## drive real editors, both of the next two

e2e-nvim: $(STAMP) ## drive real Neovims 0.12 and 0.11 (fetched into .cache, the system stays as it is; needs tmux)
	@command -v tmux >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends tmux; } \
		|| { echo "The editor tests need tmux. Install it (Debian: sudo apt install tmux) and run 'make e2e-nvim' again." >&2; exit 1; }
	@[ -n "$$MIDSPAN_NVIM" ] || PATH="$(CURDIR)/$(BIN):$$PATH" bash tests/neovim/install.sh "$(NEOVIM)"
	@[ -n "$$MIDSPAN_NVIM_OLDER" ] || bash tests/neovim/install_older.sh "$(NEOVIM)-0.11"
	MIDSPAN_NVIM="$${MIDSPAN_NVIM:-$(NEOVIM)/bin/nvim}" $(BIN)/pytest -m e2e --ignore tests/vscode

e2e-vscode: $(STAMP) vscode ## drive a real VS Code workbench in Chromium (fetched into .cache; needs Node 20 and Chromium)
	PYTHON="$(CURDIR)/$(BIN)/python" bash tests/vscode/install.sh "$(WORKBENCH)"
	$(BIN)/pytest -m e2e tests/vscode

lint: $(STAMP) ## check rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## check types (mypy strict)
	$(BIN)/mypy

fix: $(STAMP) ## apply formatting and safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## measure latency, memory and throughput of this machine, beside transformers and kernels' references
	@$(BIN)/midspan bench

soak: $(STAMP) ## type in eight editors, kill the engine, storm it with connects, 8 minutes; fails where a bar is missed
	cd tests && ../$(BIN)/python -m soak typing && ../$(BIN)/python -m soak chaos && ../$(BIN)/python -m soak storm

gpu-train: ## train python-medium on one GPU, DATA=FILE of `midspan train pack` and RUN=FOLDER given; stops after 11 minutes
	@[ -f "$(DATA)" ] && [ -n "$(RUN)" ] || { echo "make gpu-train needs DATA=FILE, made by 'midspan train pack FILE', and RUN=FOLDER" >&2; exit 1; }
	PYTHONPATH=engine:kernels $(PYTHON) -m midspan_engine train python-medium --device cuda --nice 0 --stop-after 11 --data "$(DATA)" --run "$(RUN)" $(OPTIONS)

gpu-check: ## check a machine with one GPU, at most 8 minutes: kernels, memory, speed; OUT=FOLDER for its JSON and table
	PYTHONPATH="engine:kernels$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) -m midspan_engine gpu-check --out "$(or $(OUT),engine)" $(OPTIONS)

pictures: $(STAMP) vscode ## make the README's pictures from the screens of the real editors (needs tmux, Node, Chromium)
	@[ -n "$$MIDSPAN_NVIM" ] || PATH="$(CURDIR)/$(BIN):$$PATH" bash tests/neovim/install.sh "$(NEOVIM)"
	cd tests && MIDSPAN_NVIM="$${MIDSPAN_NVIM:-$(NEOVIM)/bin/nvim}" ../$(BIN)/python -m nvim_picture ../editors/pictures
	PYTHON="$(CURDIR)/$(BIN)/python" bash tests/vscode/install.sh "$(WORKBENCH)"
	cd tests/vscode && ../../$(BIN)/python -m pictures ../../editors/pictures

vscode: ## build the VS Code extension (.vsix); needs Node 20 or newer
	@command -v npm >/dev/null || { echo "The VS Code extension is built with Node 20 or newer. Install it (Debian: sudo apt install nodejs npm) and run 'make vscode' again." >&2; exit 1; }
	cd editors/vscode && npm ci && npm run package

ci: lint types test slow e2e ## run everything that CI runs

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Midspan needs Python 3.11 or newer. Install it (Debian: sudo apt install python3) or name one: make PYTHON=python3.12 setup" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot create virtual environments. Install the package for it (Debian: sudo apt install python3-venv) and run make again." >&2; exit 1; }
	@test -x $(BIN)/pip || { echo "Creating .venv; downloads take a few minutes, once."; $(PYTHON) -m venv .venv; }
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
