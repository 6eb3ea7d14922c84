# make align   prove the port: sets up .venv, checks lite_data, makes the reference weights, runs every step
# make test    the test suite
# make test-slow       the tests that take too long for it, and the commands of README and docs that no other test shows to work
# make test-weekly     further tests of the same kind, for the weekly workflow
# make test-commands   every command of README and docs as it stands: half an hour
# make align-resnet50  prove paddle.vision's ResNet-50, with the fix that its training needs: a quarter of an hour, 13 GiB
# make align-mindspore prove a port in MindSpore: an environment of its own in .venv-mindspore (4 GB), layers, a port, its faults
# make align-mindspore-resnets   ResNet-18 and -50 in three frameworks, their commands, and one table of both ports
# make align-mindspore-short   its small port in steps 1 and 5, its layers, and a few faults, MindSpore beside .venv
# make bench           every known fault, injected and as an edit of the source, right rewrites, and false alarms: three hours
# make mutants         400 small changes of the port, and which of them the steps see: up to three hours, goes on where it was
# make ablate          remove each hypothesis of the engine in turn: does a fast test miss it? a quarter of an hour
# make bench-low-precision   faults of the model found in bfloat16 alone, and its false alarms over 20 seeds and 4 widths: an hour
# make lint    ruff and mypy
# make page MODEL_DIR=exported    an exported model in a static page that computes in the browser, written to ./page (PAGE_DIR=DIR)
# make serve MODEL_DIR=exported   an exported model's service behind nginx, on http://127.0.0.1:8080/ (PORT=N) until Ctrl-C
# make tipc    every TIPC chain in its lite mode, with the real tools
# make recording   the animated picture of the README, of what the commands print today: a minute
# make notebooks   the notebooks of docs/notebooks, executed again: a minute
# make docs    the documentation as a site, in site/
# MODEL=mobilenet_v3_large make align   the same for the large model
PYTHON ?= python3
VENV ?= .venv
MODEL ?= mobilenet_v3_small
RUN = $(VENV)/bin/python

.PHONY: align align-resnet50 align-mindspore align-mindspore-resnets align-mindspore-short ablate bench bench-low-precision test test-slow test-weekly test-commands mutants lint tipc docs format setup serve service-tools ort-web page recording notebooks clean

align: setup
	$(RUN) tools/prepare_lite_data.py --check
	$(RUN) tools/align.py --model $(MODEL)

test: setup
	$(RUN) -m pytest

test-slow: setup
	$(RUN) -m pytest -m "slow and not weekly"

test-weekly: setup
	$(RUN) -m pytest -m weekly --ignore tests/test_documented_commands.py

test-commands: setup
	$(RUN) -m pytest -m slow tests/test_documented_commands.py

align-resnet50: setup
	$(RUN) -m alignment run projects/resnet50/project.py

MINDSPORE ?= .venv-mindspore

align-mindspore: $(MINDSPORE)/.installed
	$(MINDSPORE)/bin/python -m alignment audit --port tests/pairs/mindspore_port.py:Port \
		--reference tests/pairs/torch_reference.py:Reference --input 2x3x32x32 --training --report result/mindspore
	$(MINDSPORE)/bin/python -m pytest --dist load -m "" -k "not resnets_in_three_frameworks" tests/test_mindspore.py

align-mindspore-resnets: $(MINDSPORE)/.installed
	$(MINDSPORE)/bin/python -m pytest --dist load -m "" -k "resnet" tests/test_mindspore.py tests/test_resnet50_commands.py
	$(MINDSPORE)/bin/python -m alignment run projects/resnet50/three_frameworks.py --model resnet18_cifar --steps 1-4 \
		--result-dir result/resnet18

$(MINDSPORE)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(MINDSPORE)
	$(MINDSPORE)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[paddle,ref,align,dev,mindspore]'
	touch $@

MINDSPORE_SHORT ?= .cache/mindspore
IN_SHORT = "pad_mode same by default" "torch's momentum" "keep_prob for p" "stop_gradient" "NaN counts as right" "loss reduction sum"

align-mindspore-short: $(MINDSPORE_SHORT)/.installed
	$(MINDSPORE_SHORT)/bin/python -m alignment run tests/pairs/mindspore_project.py --steps 1,5 --result-dir result/mindspore
	$(MINDSPORE_SHORT)/bin/python -m tests.mindspore_faults $(IN_SHORT)
	$(MINDSPORE_SHORT)/bin/python -m pytest -n 0 tests/test_mindspore.py

# An environment that has the packages of .venv, and MindSpore besides; .venv stays without it.
$(MINDSPORE_SHORT)/.installed: $(VENV)/.installed
	rm -rf $(MINDSPORE_SHORT)
	$(RUN) -m venv --without-pip $(MINDSPORE_SHORT)
	$(RUN) -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' \
		> `$(MINDSPORE_SHORT)/bin/python -c 'import site; print(site.getsitepackages()[0])'`/beside.pth
	$(MINDSPORE_SHORT)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt mindspore || \
		{ echo "error: MindSpore cannot be installed: is the package index reached, and are 3 GB free?" >&2; exit 1; }
	touch $@

bench: setup
	$(RUN) -m alignment bench projects/mobilenetv3/project.py
	$(RUN) -m alignment bench projects/layers/pairs.py --layer-faults --seeds 5
	$(RUN) -m alignment bench projects/mobilenetv3/project.py --together 3 --layers projects/layers/pairs.py
	$(RUN) -m tests.sound_pairs --seeds 0 1 2 3 4
	$(RUN) -m alignment bench projects/mobilenetv3/project.py --ranks 2
	$(RUN) -m alignment bench projects/mobilenetv3/project.py --source-faults
	$(RUN) -m alignment bench projects/mobilenetv3/project.py --rewrites
	$(RUN) -m alignment bench projects/mobilenetv3/project.py --false-alarms --seeds 5

MUTATED = models data metric loss train
mutants: setup
	$(RUN) -m alignment bench projects/mobilenetv3/project.py --mutants $(MUTATED:%=mobilenetv3_paddle.%) --count 400 --resume

bench-low-precision: setup
	$(RUN) -m alignment bench projects/mobilenetv3/project.py --precision bfloat16
	$(RUN) -m alignment bench projects/mobilenetv3/project.py --precision bfloat16 --false-alarms --models mobilenet_v3_small --steps 1,4,5

ablate: setup
	$(RUN) -m bench ablate --resume

lint: setup
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

CHAINS = train_inference_python:train_infer_python train_amp_inference_python:train_amp_infer_python \
	train_fleet_inference_python:train_fleet_infer_python ptq_inference_python:train_ptq_infer_python \
	paddle2onnx:paddle2onnx_infer_python serving_infer_python:serving_infer_python

tipc: setup
	@for chain in $(CHAINS); do \
		config=test_tipc/configs/$(MODEL)/$${chain#*:}.txt; \
		PYTHON=$(RUN) bash test_tipc/prepare.sh $$config lite_train_lite_infer && \
		PYTHON=$(RUN) bash test_tipc/test_$${chain%:*}.sh $$config lite_train_lite_infer || exit 1; \
	done

SITE ?= $(CURDIR)/site
docs: setup
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet --site-dir $(SITE)

notebooks: setup
	$(RUN) scripts/run_notebooks.py

recording: setup
	$(RUN) scripts/record_audit.py

format: setup
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

setup: $(VENV)/.installed

# Of Triton's client the tests need its HTTP part and its schema; it pins another ml_dtypes than ONNX.
TRITON_CLIENT = tritonclient==2.73.0 geventhttpclient==2.6.1 gevent==26.9.0 python-rapidjson==1.25 \
	brotli==1.2.1 zope-event==6.2 zope-interface==8.7

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[paddle,ref,align,deploy,doctor,dev]'
	-$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps $(TRITON_CLIENT)
	$(RUN) -c 'from mobilenetv3_common.at_import import install; install()'
	$(RUN) -m compileall -q alignment alignment_doctor bench mobilenetv3_common mobilenetv3_paddle mobilenetv3_ref projects tools tests
	touch $@

# nginx and promtool from Debian's packages, unpacked and not installed: the tests that need them are skipped without.
service-tools:
	mkdir -p .cache/packages && cd .cache/packages && apt-get update -qq && apt-get download -q nginx prometheus
	for package in .cache/packages/*.deb; do dpkg -x $$package .cache/tools; done

# ONNX Runtime for browsers, of which the page needs two files. Its package is known by their SHA-256.
ORT_WEB = .cache/ort-web
ORT_WEB_VERSION = 1.30.0
ORT_WEB_FILES = ort.wasm.bundle.min.mjs ort-wasm-simd-threaded.wasm

$(ORT_WEB)/ort.wasm.bundle.min.mjs: deploy/web/ort-web.sha256
	mkdir -p $(ORT_WEB) && cd $(ORT_WEB) && npm pack --silent onnxruntime-web@$(ORT_WEB_VERSION)
	tar xzmf $(ORT_WEB)/onnxruntime-web-$(ORT_WEB_VERSION).tgz -C $(ORT_WEB) --strip-components 2 $(ORT_WEB_FILES:%=package/dist/%)
	rm $(ORT_WEB)/onnxruntime-web-$(ORT_WEB_VERSION).tgz
	cd $(ORT_WEB) && sha256sum --check --quiet $(CURDIR)/deploy/web/ort-web.sha256 || { rm -f $(ORT_WEB_FILES); exit 1; }

ort-web: $(ORT_WEB)/ort.wasm.bundle.min.mjs

MODEL_DIR ?= exported
PAGE_DIR ?= page
PORT ?= 8080

page: ort-web
	mkdir -p $(PAGE_DIR)
	cp $(MODEL_DIR)/model.onnx $(MODEL_DIR)/deploy.json deploy/web/index.html deploy/web/*.mjs $(ORT_WEB_FILES:%=$(ORT_WEB)/%) $(PAGE_DIR)

serve: setup
	$(RUN) deploy/front.py --model-dir $(MODEL_DIR) --port $(PORT) $(SERVE_OPTIONS)

clean:
	rm -rf $(VENV) $(MINDSPORE) .cache site test_tipc/output result/*.npy result/*.json result/*.png result/*.html result/log
